package config

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Fabric is one table [fabric.NAME], or a kind that a route names and that needs
// no table.
type Fabric struct {
	Name     string // by which routes, metrics and the command line know it
	Kind     string
	Settings any // a *S of the FabricKind of that name
}

// FabricKind is a kind of fabric as a configuration file sees it. The opener of the
// kind declares it; NewFabricKind makes it.
type FabricKind struct {
	Name string
	doc  string
	keys []described
	make func() made

	noBlocks bool // no route can name it
}

// made are the settings of one table.
type made struct {
	settings any
	keys     []setting
	check    func(bad Bad)
	peers    func() []string // that the table lists; nil: the kind lists none
}

// Bad records what is wrong with a key of a fabric's table: the value and the range.
type Bad func(key, format string, args ...any)

// NewFabricKind declares a kind. A table's values live in an S, which starts with
// the defaults of the keys. check, which may be nil, tells what the keys say
// together, and what is missing.
func NewFabricKind[S any](name, doc string, check func(s *S, bad Bad), keys ...Field[S]) FabricKind {
	t := table[S]{"fabric.NAME", doc, keys}
	return FabricKind{Name: name, doc: doc, keys: t.describe(), make: func() made {
		s := new(S)
		*s = t.fresh()
		m := made{settings: s, keys: t.settings(s), check: func(Bad) {}}
		if check != nil {
			m.check = func(bad Bad) { check(s, bad) }
		}
		return m
	}}
}

// ListsPeers declares what the peers of a table are called, for a kind whose tables
// list them: a route may then name one of them.
func ListsPeers[S any](k FabricKind, peers func(s *S) []string) FabricKind {
	plain := k.make
	k.make = func() made {
		m := plain()
		m.peers = func() []string { return peers(m.settings.(*S)) }
		return m
	}
	return k
}

// CarriesNoBlocks declares a kind to which no block can be sent: a route that names one
// of its tables is wrong.
func CarriesNoBlocks(k FabricKind) FabricKind {
	k.noBlocks = true
	return k
}

var fabricForm = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$`)

var fabricName = rule[string]{"1 to 32 lower-case letters, digits or hyphens", fabricForm.MatchString}

var fabricOrNone = rule[string]{"none, or the name of a fabric", func(s string) bool { return s != "" && fabricName.ok(s) }}

const fabricDoc = "One table a fabric, named as routes, metrics and the command line shall know it. Two tables of one kind are two fabrics."

var kindKey = described{
	name: "kind", kind: "string", def: "NAME", rng: "a kind of fabric that this build has",
	doc: "What kind of fabric it is. The other keys are those of the kind.",
}

// oneFabric is a fabric while the file is read.
type oneFabric struct {
	Fabric
	made
	implied bool // by a route: there is no table
}

func (f *oneFabric) path() string { return "fabric." + f.Name }

// readFabrics reads the tables [fabric.NAME].
func (l *loader) readFabrics(v any) {
	for name, m := range l.named("fabric", v) {
		key := "fabric." + name
		l.tried[name] = true
		switch {
		case name == linkFabric:
			l.fail(key, "the link has a table of its own, [link], and is opened once")
			continue
		case name == "none" || !fabricName.ok(name):
			l.fail(key, "%q must be %s, and not none", name, fabricName.words)
			continue
		}
		kind := name
		if raw, ok := m["kind"]; ok {
			l.from[key+".kind"] = source{kind: "file", at: l.file, line: l.lines.of(key + ".kind")}
			if kind, ok = raw.(string); !ok {
				l.reject(key+".kind", false, asWritten(raw), fmt.Errorf("must be %s", kindKey.rng))
				continue
			}
		}
		f, ok := l.addFabric(name, kind)
		if !ok {
			l.fail(key+".kind", "%q is no kind of fabric that this build has: %s%s", kind, orNone(l.kindNames()), didYouMean(Nearest(kind, l.kindNames())))
			continue
		}
		keys := maps.Clone(m)
		delete(keys, "kind")
		l.fill(key, f.keys, keys)
	}
}

// addFabric makes a fabric with the defaults of its kind.
func (l *loader) addFabric(name, kind string) (*oneFabric, bool) {
	i := slices.IndexFunc(l.kinds, func(k FabricKind) bool { return k.Name == kind })
	if i < 0 {
		return nil, false
	}
	f := &oneFabric{Fabric: Fabric{Name: name, Kind: kind}, made: l.kinds[i].make()}
	f.Settings = f.made.settings
	l.fabrics = append(l.fabrics, f)
	return f, true
}

// implyFabrics adds the kinds that a route or disagg.fabric names and that have no
// table: their defaults may be all they need.
func (l *loader) implyFabrics(flags map[string]string) {
	const short = "disagg.fabric"
	used := []string{cmp.Or(flags[short], l.vars[EnvName(short)], l.cfg.Disagg.Fabric)}
	for _, r := range l.cfg.Routes {
		used = append(used, r.Fabric)
	}
	for _, name := range used {
		if !l.tried[name] && l.fabric(name) == nil {
			if f, ok := l.addFabric(name, name); ok {
				f.implied = true
			}
		}
	}
	slices.SortFunc(l.fabrics, func(a, b *oneFabric) int { return strings.Compare(a.Name, b.Name) })
}

// dropUnused takes back what disagg.fabric implied while it is not enabled.
func (l *loader) dropUnused() {
	l.fabrics = slices.DeleteFunc(l.fabrics, func(f *oneFabric) bool {
		return f.implied && !l.cfg.Disagg.Enabled && !slices.ContainsFunc(l.cfg.Routes, func(r Route) bool { return r.Fabric == f.Name })
	})
}

func (l *loader) fabric(name string) *oneFabric {
	for _, f := range l.fabrics {
		if f.Name == name {
			return f
		}
	}
	return nil
}

// fabricEntries are the tables of all fabrics.
func (l *loader) fabricEntries() []entry {
	var out []entry
	for _, f := range l.fabrics {
		kind := setting{described: kindKey, show: func() string { return words.show(f.Kind) }}
		out = append(out, entry{f.path(), append([]setting{kind}, f.keys...)})
	}
	return out
}

// endFabrics checks the fabrics' tables, and puts them into the configuration.
func (l *loader) endFabrics() {
	for _, f := range l.fabrics {
		for _, s := range f.keys {
			if s.kind == Paths.name {
				path := s.bare()
				l.absolute(f.path()+"."+s.name, &path)
				_ = s.setText(path) // what was stored once can be stored again
			}
		}
		f.check(func(key, format string, args ...any) { l.fail(f.path()+"."+key, format, args...) })
		l.cfg.Fabrics = append(l.cfg.Fabrics, f.Fabric)
	}
}

func (l *loader) kindNames() []string {
	out := make([]string, len(l.kinds))
	for i, k := range l.kinds {
		out[i] = k.Name
	}
	return out
}

// fabricNames are those that a route can name.
func (l *loader) fabricNames() []string {
	names := append([]string{linkFabric}, l.kindNames()...)
	for _, f := range l.fabrics {
		names = append(names, f.Name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func orNone(names []string) string {
	if len(names) == 0 {
		return "it has none"
	}
	return "it has " + strings.Join(names, ", ")
}

func (l *loader) checkFabrics() {
	l.endFabrics()
	d := l.cfg.Disagg
	if d.Enabled && d.Fabric == "none" {
		l.fail("disagg.fabric", "none, while disagg.enabled is true: name the fabric that takes the blocks (%s), or set disagg.enabled = false", strings.Join(l.fabricNames(), ", "))
	}
	if d.Fabric != "none" {
		l.checkFabric("disagg.fabric", d.Fabric, d.Enabled)
	}
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
	}
}

// carriesNoBlocks says that a fabric of the file cannot take blocks.
func (l *loader) carriesNoBlocks(name string) bool {
	f := l.fabric(name)
	return f != nil && slices.ContainsFunc(l.kinds, func(k FabricKind) bool { return k.Name == f.Kind && k.noBlocks })
}

// checkFabric tests a name that a key uses; one that is not in use may lack peers.
func (l *loader) checkFabric(key, fabric string, used bool) {
	switch {
	case l.carriesNoBlocks(fabric):
		l.fail(key, "%q is of a kind that carries no blocks of this daemon", fabric)
	case l.tried[fabric]: // what is wrong with its table has been said
	case !slices.Contains(l.fabricNames(), fabric):
		l.fail(key, "%q is no [fabric.NAME] of the file, and not in this build, which has %s%s", fabric, strings.Join(l.fabricNames(), ", "), didYouMean(Nearest(fabric, l.fabricNames())))
	case used && fabric == linkFabric && len(l.cfg.Link.Peers) == 0:
		l.fail(key, "\"link\" needs a peer: add [[link.peer]]")
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
		names, where = l.linkPeers(), "[[link.peer]], and no other fabric's"
		for _, f := range l.fabrics {
			more, _ := l.peersOf(f.Name)
			names = append(names, more...)
		}
	}
	if !slices.Contains(names, r.Peer) {
		l.fail(key, "%q is no %s%s", r.Peer, where, didYouMean(Nearest(r.Peer, names)))
	}
}

// peersOf are the peers that a fabric lists, and where; "" for one that lists none.
func (l *loader) peersOf(fabric string) (names []string, where string) {
	if fabric == linkFabric {
		return l.linkPeers(), "[[link.peer]]"
	}
	if f := l.fabric(fabric); f != nil && f.peers != nil {
		return f.peers(), "peer of [" + f.path() + "]"
	}
	return nil, ""
}

func (l *loader) linkPeers() []string {
	names := make([]string, len(l.cfg.Link.Peers))
	for i, p := range l.cfg.Link.Peers {
		names[i] = p.Name
	}
	return names
}
