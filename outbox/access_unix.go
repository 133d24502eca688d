//go:build unix

package outbox

import "syscall"

// writable asks the system whether this process may write path and, if it is a
// directory, make files in it.
func writable(path string, dir bool) error {
	const w, x = 2, 1
	mode := uint32(w)
	if dir {
		mode |= x
	}
	return syscall.Access(path, mode)
}

// readable asks the system whether this process may read the file.
func readable(path string) error {
	const r = 4
	return syscall.Access(path, r)
}
