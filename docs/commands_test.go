package docs_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// build makes the relay once for all tests of this package.
var build = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "relay-docs-")
	if err != nil {
		return "", err
	}
	binary := filepath.Join(dir, "relay")
	cmd := exec.Command("go", "build", "-o", binary, "../cmd/relay")
	cmd.Stderr = os.Stderr
	return binary, cmd.Run()
})

func TestMain(m *testing.M) {
	code := m.Run()
	if binary, err := build(); err == nil {
		os.RemoveAll(filepath.Dir(binary))
	}
	os.Exit(code)
}

// relayBinary is the path of a relay built from this tree.
func relayBinary(t *testing.T) string {
	t.Helper()
	binary, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return binary
}

var (
	commandLine = regexp.MustCompile(`(?m)^  ([a-z]+) +[A-Z]`)
	flagName    = regexp.MustCompile(`--[a-z][a-z-]*`)
)

// commands are the relay's commands with the flags that each takes.
func commands(t *testing.T) map[string][]string {
	t.Helper()
	binary := relayBinary(t)
	help := func(args ...string) string {
		out, err := exec.Command(binary, append(args, "--help")...).Output()
		if err != nil {
			t.Fatalf("relay %v --help: %v", args, err)
		}
		return string(out)
	}
	all := map[string][]string{}
	_, list, _ := strings.Cut(help(), "Available Commands:")
	for _, m := range commandLine.FindAllStringSubmatch(list, -1) {
		_, flags, _ := strings.Cut(help(m[1]), "\nFlags:")
		all[m[1]] = flagName.FindAllString(flags, -1)
	}
	if len(all) < 15 {
		t.Fatalf("only %d commands", len(all))
	}
	return all
}

var (
	inlineCommand = regexp.MustCompile("`relay ([^`\n]+)`")
	continued     = regexp.MustCompile(`\\\n\s*`)
	comment       = regexp.MustCompile(`(?m)(^|\s)#\s.*$`)
	userFlag      = regexp.MustCompile(`(-u|-g|enable --now|start|stop|restart|reload|edit|status|-name|-o) relay(@\w+)?\b`)
)

// invocations are the words after "relay" of every call in a page: in its shell
// blocks and in its text.
func invocations(page string) [][]string {
	var calls [][]string
	for _, m := range inlineCommand.FindAllStringSubmatch(page, -1) {
		calls = append(calls, strings.Fields(m[1]))
	}
	for _, block := range append(blocks(page, "sh"), blocks(page, "console")...) {
		block = comment.ReplaceAllString(continued.ReplaceAllString(block, " "), "")
		for _, line := range strings.FieldsFunc(block, func(c rune) bool { return strings.ContainsRune("\n|;&", c) }) {
			words := strings.Fields(userFlag.ReplaceAllString(line, ""))
			i := slices.Index(words, "relay")
			if i < 0 || i+1 == len(words) || strings.Contains(line, "systemctl") {
				continue
			}
			calls = append(calls, words[i+1:])
		}
	}
	return calls
}

func TestCommandsInPagesExist(t *testing.T) {
	known := commands(t)
	seen := map[string]bool{}
	for name, page := range pages(t) {
		for _, words := range invocations(page) {
			command := words[0]
			if command == "--help" || command == "COMMAND" {
				continue
			}
			flags, ok := known[command]
			if !ok {
				t.Errorf("%s: relay %s: there is no such command", name, strings.Join(words, " "))
				continue
			}
			seen[command] = true
			for _, w := range words[1:] {
				if flag := flagName.FindString(w); strings.HasPrefix(w, "--") && flag != "" && !slices.Contains(flags, flag) {
					t.Errorf("%s: relay %s takes no %s", name, command, flag)
				}
			}
		}
	}
	for command := range known {
		if !seen[command] && !slices.Contains([]string{"help", "completion", "man"}, command) {
			t.Errorf("no page mentions relay %s", command)
		}
	}
}

var table = regexp.MustCompile(`(?m)^\[`)

// Configuration in the pages is strict TOML with keys that exist. Parts of a file
// are completed with what every file needs.
func TestConfigurationInPagesIsAccepted(t *testing.T) {
	binary := relayBinary(t)
	for name, page := range pages(t) {
		for _, block := range blocks(page, "toml") {
			if !table.MatchString(block) {
				t.Errorf("%s: no table in:\n%s", name, block)
			}
			text := block
			if !strings.Contains(block, "[outbox]") {
				text += "\n[outbox]\npath = \"missing.db\"\n"
			}
			text = regexp.MustCompile(`(?m)^path = .*$`).ReplaceAllString(text, `path = "missing.db"`)
			path := filepath.Join(t.TempDir(), "relay.toml")
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(binary, "status", "--config", path)
			cmd.Env = append(os.Environ(), "CREDENTIALS_DIRECTORY=/nowhere")
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			// A wrong configuration is 2; 1 is the database, which does not exist.
			if err := cmd.Run(); cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != 1 {
				t.Errorf("%s: %v: %s\n%s", name, err, stderr.String(), block)
			}
		}
	}
}

// The example lines of an import are taken as they are.
func TestImportLinesInPagesAreAccepted(t *testing.T) {
	binary := relayBinary(t)
	db := filepath.Join(t.TempDir(), "outbox.db")
	if out, err := exec.Command(binary, "migrate", "--create", "--db", db).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	lines := strings.Join(blocks(read(t, "moving.md"), "json"), "")
	cmd := exec.Command(binary, "import", "--db", db)
	cmd.Stdin = strings.NewReader(lines)
	want := fmt.Sprintf("imported %d,", strings.Count(lines, "\n"))
	if out, err := cmd.CombinedOutput(); err != nil || !strings.HasPrefix(string(out), want) {
		t.Errorf("%v: %s, want %s", err, out, want)
	}
}

var (
	storeFile  = regexp.MustCompile("`(relay\\.(?:nats|tls)\\.[a-z]+)`")
	credential = regexp.MustCompile(`(?m)^LoadCredential=([^:]+):(.+)$`)
)

// The files that the operator's page asks for are those that the unit loads,
// under the names by which the configuration finds them.
func TestCredentialsInPagesAreLoaded(t *testing.T) {
	loaded := map[string]string{}
	for _, m := range credential.FindAllStringSubmatch(read(t, "../systemd/relay.service"), -1) {
		loaded[m[2]] = m[1]
	}
	page := read(t, "operate.md")
	listed := storeFile.FindAllStringSubmatch(page, -1)
	if len(listed) == 0 || len(loaded) == 0 {
		t.Fatal("no credentials found")
	}
	for _, m := range listed {
		if _, ok := loaded[m[1]]; !ok {
			t.Errorf("operate.md: the unit does not load %s", m[1])
		}
	}
	for file := range loaded {
		if !strings.Contains(page, "`"+file+"`") {
			t.Errorf("operate.md does not list %s", file)
		}
	}
}

// Drop-ins in the pages are accepted by systemd together with the unit.
func TestDropInsInPagesAreAccepted(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is not installed here: drop-ins are not checked")
	}
	unit := strings.ReplaceAll(read(t, "../systemd/relay.service"), "/usr/bin/relay", relayBinary(t))
	for name, page := range pages(t) {
		for _, block := range blocks(page, "ini") {
			path := filepath.Join(t.TempDir(), "relay.service")
			if err := os.WriteFile(path, []byte(unit+block), 0o644); err != nil {
				t.Fatal(err)
			}
			out, err := exec.Command(analyze, "verify", "--man=no", path).CombinedOutput()
			if err != nil || len(bytes.TrimSpace(out)) > 0 {
				t.Errorf("%s: %v: %s\n%s", name, err, out, block)
			}
		}
	}
}

var apiCall = regexp.MustCompile(`\.api\(ctx, "([A-Z.]+)"`)

// Every question that the relay asks JetStream needs a permission, which the
// page names.
func TestPermissionsInPagesAreThoseThatTheRelayUses(t *testing.T) {
	files, err := filepath.Glob("../relay/jetstream/*.go")
	if err != nil {
		t.Fatal(err)
	}
	page := read(t, "security.md")
	asked := map[string]bool{}
	for _, file := range files {
		for _, m := range apiCall.FindAllStringSubmatch(read(t, file), -1) {
			asked["$JS.API."+m[1]] = true
		}
	}
	if len(asked) < 2 {
		t.Fatalf("found only %d questions in the source", len(asked))
	}
	for subject := range asked {
		if !strings.Contains(page, "| publish: `"+subject+"` |") {
			t.Errorf("security.md does not list the permission to publish to %s", subject)
		}
	}
	for _, m := range regexp.MustCompile(`\$JS\.API\.[A-Z.]+[A-Z]`).FindAllString(page, -1) {
		if !asked[m] {
			t.Errorf("security.md names %s, which the relay does not use", m)
		}
	}
}
