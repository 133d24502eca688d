package jetstream

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/outbox-relay/relay/relay"
)

// userInfoSubject is where a server tells a user about itself.
const userInfoSubject = "$SYS.REQ.USER.INFO"

// grants are a user's permissions in one direction.
type grants struct {
	Allow []string `json:"allow"`
	Deny  []string `json:"deny"`
}

// permissions are nil where there are no limits.
type permissions struct {
	Publish *grants `json:"publish"`
}

func (p *Publisher) permissions(ctx context.Context) (*permissions, error) {
	data, err := p.request(ctx, userInfoSubject, nil)
	if err != nil {
		return nil, err
	}
	var answer struct {
		Data struct {
			Permissions *permissions `json:"permissions"`
		} `json:"data"`
		Error *json.RawMessage `json:"error"`
	}
	if err := json.Unmarshal(data, &answer); err != nil {
		return nil, err
	}
	if answer.Error != nil {
		return nil, errors.New("the server reports an error")
	}
	return answer.Data.Permissions, nil
}

// reach is how much of a pattern's subjects may be published to.
type reach uint8

const (
	reachAll reach = iota
	reachSome
	reachNone
)

func (g *grants) reach(pattern string) reach {
	if g == nil {
		return reachAll
	}
	some, all := len(g.Allow) == 0, len(g.Allow) == 0
	for _, a := range g.Allow {
		some = some || subjectsOverlap(a, pattern)
		all = all || subjectCovers(a, pattern)
	}
	for _, d := range g.Deny {
		if subjectCovers(d, pattern) {
			return reachNone
		}
		all = all && !subjectsOverlap(d, pattern)
	}
	switch {
	case all:
		return reachAll
	case some:
		return reachSome
	}
	return reachNone
}

// checkPermissions compares the routes with what the user may publish to.
func (c *preflight) checkPermissions(ctx context.Context) {
	have, err := c.p.permissions(ctx)
	if err != nil {
		c.add(SeverityUnknown, "nats", "the user's permissions are not visible: "+plain(err),
			"the server did not answer "+userInfoSubject,
			"allow it, or check by hand that the user may publish to every route's subjects")
		return
	}
	if have == nil {
		return
	}
	for i := range c.routes.Len() {
		c.checkReach(c.routes.At(i), c.routes.Pattern(i), have.Publish.reach(c.routes.Pattern(i)))
	}
}

func (c *preflight) checkReach(route relay.Route, pattern string, r reach) {
	switch r {
	case reachNone:
		c.add(SeverityError, routeName(route), "the user may not publish to "+pattern,
			"the server refuses its events, and the route stays blocked", "allow publishing to "+pattern)
	case reachSome:
		c.add(SeverityWarning, routeName(route), "the user may publish to only some of "+pattern,
			"events whose subject is not allowed block the route", "allow publishing to "+pattern)
	}
}
