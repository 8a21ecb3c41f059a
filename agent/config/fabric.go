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
	// What a reload needs of a kind that has live keys; nil: it has none. The fabric has to
	// be a Reloader of package openers.
	live *liveKeys
	// What the peers are called that a table lists, and where it lists them; nil: the
	// kind lists none.
	peers func(settings any) []string
	where string
	fixed *fixed // nil: it has a table [fabric.NAME] for each fabric

	// tenants are those whose blocks a table opens to peers; nil: the kind has none.
	tenants func(settings any) []string

	noBlocks bool // no route can name it
}

// liveKeys are the keys of a kind that can change in a running daemon.
type liveKeys struct {
	clone func(settings any) any
	take  func(dst, src any) // their values
	check func(settings any, bad Bad)
}

// Reloads reports whether tables of the kind have keys that a reload takes over.
func (k FabricKind) Reloads() bool { return k.live != nil }

// made are the settings of one table.
type made struct {
	settings any
	keys     []setting
	check    func(bad Bad)
}

// Bad records what is wrong with a key of a fabric's table: the value and the range.
type Bad func(key, format string, args ...any)

// NewFabricKind declares a kind. A table's values live in an S, which starts with
// the defaults of the keys. check, which may be nil, tells what the keys say
// together, and what is missing.
func NewFabricKind[S any](name, doc string, check func(s *S, bad Bad), keys ...Field[S]) FabricKind {
	t := table[S]{"fabric.NAME", doc, keys}
	if check == nil {
		check = func(*S, Bad) {}
	}
	return FabricKind{Name: name, doc: doc, keys: t.describe(), live: t.liveKeys(check), make: func() made {
		s := new(S)
		*s = t.fresh()
		return made{settings: s, keys: t.settings(s), check: func(bad Bad) { check(s, bad) }}
	}}
}

// liveKeys are those of a table's keys that are marked as live; nil: none is.
func (t table[S]) liveKeys(check func(*S, Bad)) *liveKeys {
	var live []field[S]
	for _, f := range t.fields {
		if f.live {
			live = append(live, f)
		}
	}
	if len(live) == 0 {
		return nil
	}
	return &liveKeys{
		clone: func(settings any) any { s := *settings.(*S); return &s },
		take: func(dst, src any) {
			for _, f := range live {
				f.take(dst.(*S), src.(*S))
			}
		},
		check: func(settings any, bad Bad) { check(settings.(*S), bad) },
	}
}

// ListsPeers declares what the peers of a table are called, for a kind whose tables
// list them: a route may then name one of them.
func ListsPeers[S any](k FabricKind, peers func(s *S) []string) FabricKind {
	k.peers = func(settings any) []string { return peers(settings.(*S)) }
	return k
}

// OpensTenants declares whose blocks a table opens to its peers, by its key tenants: each
// must be one of security.tenants.
func OpensTenants[S any](k FabricKind, tenants func(s *S) []string) FabricKind {
	k.tenants = func(settings any) []string { return tenants(settings.(*S)) }
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
		case l.cfg.Settings(name) != nil:
			l.fail(key, "%s has a table of its own, [%s], and is opened once", name, name)
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
	kinds := l.cfg.kinds
	i := slices.IndexFunc(kinds, func(k FabricKind) bool { return k.Name == kind && k.fixed == nil })
	if i < 0 {
		return nil, false
	}
	f := &oneFabric{Fabric: Fabric{Name: name, Kind: kind}, made: kinds[i].make()}
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
	var named []Fabric
	for _, f := range l.fabrics {
		l.rebase(f.path(), f.keys)
		f.check(func(key, format string, args ...any) { l.fail(f.path()+"."+key, format, args...) })
		l.checkTenantsOf(f)
		named = append(named, f.Fabric)
	}
	l.cfg.Fabrics = append(named, l.cfg.Fabrics...)
}

// checkFixed checks the tables of the fabrics that every daemon has.
func (l *loader) checkFixed() {
	for k := range fixedKinds(l.cfg.kinds) {
		k.fixed.check(l.cfg, l.fail, l.warn)
	}
}

// kindNames are the kinds of [fabric.NAME].
func (l *loader) kindNames() (out []string) {
	for _, k := range l.cfg.kinds {
		if k.fixed == nil {
			out = append(out, k.Name)
		}
	}
	return out
}

// fabricNames are those that a route can name.
func (l *loader) fabricNames() []string {
	names := l.kindNames()
	for k := range fixedKinds(l.cfg.kinds) {
		names = append(names, k.Name)
	}
	for _, f := range l.fabrics {
		names = append(names, f.Name)
	}
	for _, f := range l.cfg.Fabrics { // those that run
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
	l.checkRoutes()
}

// checkTenantsOf tests whose blocks a table opens to its peers.
func (l *loader) checkTenantsOf(f *oneFabric) {
	i := slices.IndexFunc(l.cfg.kinds, func(k FabricKind) bool { return k.Name == f.Kind })
	if i < 0 || l.cfg.kinds[i].tenants == nil {
		return
	}
	for _, t := range l.cfg.kinds[i].tenants(f.Settings) {
		if !slices.Contains(l.cfg.Security.Tenants, t) {
			l.fail(f.path()+".tenants", "%q is not in security.tenants, which is %q", t, l.cfg.Security.Tenants)
		}
	}
}

// carriesNoBlocks says that a fabric of the file cannot take blocks.
func (l *loader) carriesNoBlocks(name string) bool {
	return slices.ContainsFunc(l.cfg.kinds, func(k FabricKind) bool { return k.Name == l.cfg.kindOf(name) && k.noBlocks })
}

// checkFabric tests a name that a key uses; one that is not in use may lack peers.
func (l *loader) checkFabric(key, fabric string, used bool) {
	switch {
	case l.carriesNoBlocks(fabric):
		l.fail(key, "%q is of a kind that carries no blocks of this daemon", fabric)
	case l.tried[fabric]: // what is wrong with its table has been said
	case !slices.Contains(l.fabricNames(), fabric):
		l.fail(key, "%q is no [fabric.NAME] of the file, and not in this build, which has %s%s", fabric, strings.Join(l.fabricNames(), ", "), didYouMean(Nearest(fabric, l.fabricNames())))
	case used:
		for k := range fixedKinds(l.cfg.kinds) {
			if names, where := l.peersOf(fabric); k.Name == fabric && where != "" && len(names) == 0 {
				l.fail(key, "%q needs a peer: add %s", fabric, where)
			}
		}
	}
}

// peersOf are the peers that a fabric lists, and where; "" for one that lists none.
func (l *loader) peersOf(fabric string) (names []string, where string) {
	for _, f := range l.cfg.Fabrics {
		i := slices.IndexFunc(l.cfg.kinds, func(k FabricKind) bool { return k.Name == f.Kind })
		if k := l.cfg.kinds[i]; f.Name == fabric && k.peers != nil {
			return k.peers(f.Settings), cmp.Or(k.where, "peer of [fabric."+f.Name+"]")
		}
	}
	return nil, ""
}
