package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/outbox-relay/relay/outbox"
)

const (
	patience = 10 * time.Second // for a condition to come true
	pause    = 20 * time.Millisecond
)

// worker plays a relay in scripts:
//
//	worker DB claim NAME LEASE [LIMIT]    claim due rows and leave them claimed
//	worker DB ack                         claim due rows and acknowledge them
//	worker DB retry CODE DETAIL DELAY     claim due rows and put them off
//	worker DB quarantine REASON           claim due rows and quarantine them
func worker(ts *testscript.TestScript, _ bool, args []string) {
	ctx := context.Background()
	store, err := outbox.Open(ctx, ts.MkAbs(args[0]), outbox.Options{})
	ts.Check(err)
	defer store.Close()
	h := store.AllTenants()
	name, lease, limit := "worker", time.Minute, 1000
	if args[1] == "claim" {
		name, lease = args[2], duration(ts, args[3])
		if len(args) > 4 {
			limit, err = strconv.Atoi(args[4])
			ts.Check(err)
		}
	}
	var batch []outbox.Settlement
	for _, c := range claimDue(ts, h, name, lease, limit) {
		s := outbox.Settlement{Row: c.Row, Token: c.Token}
		switch args[1] {
		case "claim":
			continue
		case "ack":
			s.Action = outbox.Ack
		case "retry":
			s.Action, s.Failure, s.Delay = outbox.Retry, outbox.Failure{Code: args[2], Detail: args[3]}, duration(ts, args[4])
		case "quarantine":
			s.Action, s.Reason = outbox.Quarantine, args[2]
		}
		batch = append(batch, s)
	}
	settled, err := h.Settle(ctx, batch)
	ts.Check(err)
	for _, s := range settled {
		ts.Check(s.Err)
	}
}

// claimDue waits until something is due.
func claimDue(ts *testscript.TestScript, h *outbox.Handle, name string, lease time.Duration, limit int) []outbox.Claimed {
	for deadline := time.Now().Add(patience); ; time.Sleep(pause) {
		claimed, err := h.Claim(context.Background(), name, lease, limit)
		ts.Check(err)
		if len(claimed) > 0 {
			return claimed
		}
		if time.Now().After(deadline) {
			ts.Fatalf("nothing is due")
		}
	}
}

func duration(ts *testscript.TestScript, s string) time.Duration {
	d, err := time.ParseDuration(s)
	ts.Check(err)
	return d
}

// spoil runs SQL on a database, as somebody at a prompt would: spoil DB SQL.
// The schema's checks and foreign keys do not stand in the way. A missing file is
// made.
func spoil(ts *testscript.TestScript, _ bool, args []string) {
	db, err := openUnchecked(ts.MkAbs(args[0]))
	ts.Check(err)
	defer db.Close()
	_, err = db.Exec(args[1])
	ts.Check(err)
}

func openUnchecked(path string) (*sql.DB, error) {
	uri := url.URL{Scheme: "file", Path: path, RawQuery: "mode=rwc&_pragma=ignore_check_constraints(1)"}
	return sql.Open("sqlite", uri.String())
}

// eventually runs a command until its output matches: eventually PATTERN command….
func eventually(ts *testscript.TestScript, _ bool, args []string) {
	pattern, err := regexp.Compile("(?m)" + args[0])
	ts.Check(err)
	for deadline := time.Now().Add(patience); ; time.Sleep(pause) {
		err := ts.Exec(args[1], args[2:]...)
		if err == nil && pattern.MatchString(ts.ReadFile("stdout")) {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("no output matches %s", args[0])
		}
	}
}

// sameMembers compares some members of the objects in two files of JSON lines:
// samemembers FILE FILE MEMBER….
func sameMembers(ts *testscript.TestScript, _ bool, args []string) {
	members := func(file string) (lines []string) {
		for _, line := range strings.Split(strings.TrimSpace(ts.ReadFile(file)), "\n") {
			var all map[string]json.RawMessage
			ts.Check(json.Unmarshal([]byte(line), &all))
			var some []string
			for _, name := range args[2:] {
				some = append(some, name+"="+string(all[name]))
			}
			lines = append(lines, strings.Join(some, " "))
		}
		return lines
	}
	a, b := members(args[0]), members(args[1])
	if !slices.Equal(a, b) {
		ts.Fatalf("%s\n%s\n\n%s\n%s", args[0], strings.Join(a, "\n"), args[1], strings.Join(b, "\n"))
	}
}
