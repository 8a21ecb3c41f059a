package config

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

var fromForm = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?(/[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?)?$`)

var fromName = rule[string]{"the name of a fabric, or FABRIC/PEER", fromForm.MatchString}

var routeTable = table[Route]{"route", "`[[route]]`: which fabric carries which blocks; the first match wins. Not settable from the environment.", []field[Route]{
	key("from", func(r *Route) *string { return &r.From }, words, "", orEmpty(fromName), "Blocks that peers of this fabric bring, or FABRIC/PEER one of them: they go on to the route's fabric, and what these peers ask for is looked for there. Empty: blocks of this daemon's engines."),
	key("tier", func(r *Route) *string { return &r.Tier }, words, "", orEmpty(oneOf("think_complete", "think_active", "output_critical")), "Only this tier. Empty: any."),
	key("namespace", func(r *Route) *string { return &r.Namespace }, words, "", hexID(32), "Only this namespace. Empty: any."),
	key("peer", func(r *Route) *string { return &r.Peer }, words, "", free[string](), "Only to this peer. Empty: any."),
	key("min_bytes", func(r *Route) *uint64 { return &r.MinBytes }, sizes, 0, free[uint64](), "Only bodies of at least so many bytes."),
	key("max_bytes", func(r *Route) *uint64 { return &r.MaxBytes }, sizes, 0, free[uint64](), "Only bodies of at most so many bytes. 0: no bound."),
	key("fabric", func(r *Route) *string { return &r.Fabric }, words, "", fabricName, "The fabric: link, a [fabric.NAME] of the file, or a kind of fabric that needs no table. Required."),
	key("require", func(r *Route) *bool { return &r.Require }, booleans, false, free[bool](), "Fail rather than fall back to another fabric."),
}}

var nameForm = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$`)

// nameRule is that of a DNS name's labels and dots, since a certificate
// carries the name.
var nameRule = rule[string]{"1 to 63 letters, digits, dots, hyphens or underscores", nameForm.MatchString}

var extentRule = rule[uint64]{
	"a multiple of 64 KiB between " + FormatBytes(minCapacity) + " and 1 GiB",
	func(v uint64) bool { return v%(64<<10) == 0 && v >= minCapacity && v <= 1<<30 },
}

// routeForm is [[route]]. A reload takes the routes over where all the fabrics run that
// they name.
func routeForm() form {
	f := array(routeTable.reloads(), "routes", "", func(c *Config) *[]Route { return &c.Routes })
	f.take = func(dst, src *Config) { dst.Routes = src.Routes }
	f.fits = func(running, next *Config) bool {
		for _, r := range next.Routes {
			from, _, _ := strings.Cut(r.From, "/")
			if !running.runs(next, r.Fabric) || from != "" && !running.runs(next, from) {
				return false
			}
		}
		return true
	}
	return f
}

// runs says whether a fabric of next is open in what runs.
func (c *Config) runs(next *Config, name string) bool {
	kind := c.kindOf(name)
	return kind != "" && kind == next.kindOf(name)
}

// WithRoute is the configuration with one route above the others, as a file would have
// it: keys with their values. The error is an *Error.
func (c *Config) WithRoute(keys map[string]any) (*Config, Route, error) {
	out := c.copy()
	r := routeTable.fresh()
	l := &loader{cfg: out, from: map[string]source{}}
	l.fill("route[0]", routeTable.settings(&r), keys)
	out.Routes = append([]Route{r}, c.Routes...)
	if r.Fabric != "" && out.Settings(r.Fabric) == nil {
		l.fail("route[0].fabric", "%q does not run in this daemon: write it into the file, and restart", r.Fabric)
	}
	l.checkRoutes()
	if len(l.problems) > 0 {
		return nil, r, &Error{l.problems}
	}
	return out, r, nil
}

// checkRoutes tests the routes against the fabrics.
func (l *loader) checkRoutes() {
	for i, r := range l.cfg.Routes {
		key := fmt.Sprintf("route[%d]", i)
		if r.Fabric == "" {
			l.fail(key+".fabric", "missing: one of %s", strings.Join(l.fabricNames(), ", "))
		} else {
			l.checkFabric(key+".fabric", r.Fabric, true)
		}
		if r.MaxBytes != 0 && r.MaxBytes < r.MinBytes {
			l.fail(key+".max_bytes", "%d is below min_bytes, which is %d: the route matches nothing", r.MaxBytes, r.MinBytes)
		}
		l.checkRoutePeer(key+".peer", r)
		l.checkFrom(key+".from", r)
	}
}

// checkRoutePeer tests that the fabric of a route lists its peer, or, where its kind
// lists none, that some fabric does: one peer can be reached over several.
func (l *loader) checkRoutePeer(key string, r Route) {
	if r.Peer == "" || l.tried[r.Fabric] && l.fabric(r.Fabric) == nil {
		return // or what is wrong has been said
	}
	names, where := l.peersOf(r.Fabric)
	if where == "" {
		names, where = l.cfg.Peers(), "peer that any fabric lists"
	}
	if !slices.Contains(names, r.Peer) {
		l.fail(key, "%q is no %s%s", r.Peer, where, didYouMean(Nearest(r.Peer, names)))
	}
}

// checkFrom tests that the fabric whose peers bring a route's blocks has peers, and that
// the route does not lead back to them.
func (l *loader) checkFrom(key string, r Route) {
	name, peer, one := strings.Cut(r.From, "/")
	if name == "" || l.tried[name] && l.fabric(name) == nil {
		return
	}
	names, where := l.peersOf(name)
	switch {
	case where == "":
		l.fail(key, "%q is no fabric of the file whose peers bring blocks%s", name, didYouMean(Nearest(name, l.peered())))
	case one && !slices.Contains(names, peer):
		l.fail(key, "%q is no %s%s", peer, where, didYouMean(Nearest(peer, names)))
	case one && r.Fabric == name && r.Peer == peer:
		l.fail(key, "the route leads back to where its blocks come from")
	}
}

// peered are the fabrics that list peers.
func (l *loader) peered() (out []string) {
	for _, f := range l.cfg.Fabrics {
		if _, where := l.peersOf(f.Name); where != "" {
			out = append(out, f.Name)
		}
	}
	return out
}
