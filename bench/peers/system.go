package peers

import "slices"

// system is one row of the comparison.
type system struct {
	name   string
	group  string // what --only may name too
	pair   string // systems of one pair share its processes
	mode   string // which of the pair's systems it is
	read   string // how a batch is read; empty: not measured
	write  string
	verify string // who checks the bytes, and when
	bound  string // the plain system under it, for those who verify
	about  string
	still  bool   // a read moves no bytes: a rate would say nothing
	apart  bool   // only where Options.Only has its very name
	beside string // the foreign system of the same transport, for a ratio
}

// What the report says about verification.
const (
	verifiedAlways = "always on: every block is hashed on arrival; it cannot be turned off"
	verifiedCommit = "at commit, by the daemon; a mapped read trusts that"
	verifiedNever  = "none"
)

const (
	groupLink  = "link"
	groupPlain = "plain"
	pairMemory = "memory"
	linkTCP    = "link-tcp" // what ratios are against
	plainTCP   = "plain-tcp"
	hashOnly   = "hash"      // H of the bound
	windowCost = "copy-hash" // on one core too

	// Transfer engines of Mooncake's kind: both sides theirs, initiator-target, both ours.
	theirs       = "mooncake"
	oursToTheirs = "te-mooncake"
	theirsToOurs = "mooncake-te"
	relayed      = "mooncake-relay" // both sides theirs, and a daemon of ours between them
	ours         = "te"

	// Meridian's helper, and a target that is NIXL's own; and what blocks cost besides.
	helperTCP  = "helper-tcp"
	helperCMA  = "helper-cma"
	commitCost = "commit"
)

// systems in the order in which they are measured.
var systems = []system{
	{name: linkTCP, group: groupLink, pair: groupLink, mode: "tcp", read: "PULL", write: "PUSH", verify: verifiedAlways, bound: "plain-tcp", about: "Meridian, agent to agent"},
	{name: "link-tls", group: groupLink, pair: groupLink, mode: "tls", read: "PULL", write: "PUSH", verify: verifiedAlways, bound: "plain-tls", about: "Meridian, agent to agent, TLS 1.3"},
	{name: "link-unix", group: groupLink, pair: groupLink, mode: "unix", read: "PULL", write: "PUSH", verify: verifiedAlways, bound: "plain-unix", about: "Meridian, agent to agent, Unix socket"},
	{name: "engine", group: "engine", pair: "engine", mode: "touch", read: "ACQUIRE, every byte read in place", write: "PUT by the staging ring", verify: verifiedCommit, about: "Meridian, engine to its daemon"},
	{name: "engine-map", group: "engine", pair: "engine", mode: "map", read: "ACQUIRE, nothing touched", verify: verifiedCommit, about: "Meridian, engine to its daemon", still: true},
	{name: theirs, group: "mooncake", pair: theirs, read: "batch_transfer_sync_read", write: "batch_transfer_sync_write", verify: verifiedNever, about: "Mooncake transfer engine, tcp, P2PHANDSHAKE, pool of 4 lanes"},
	{name: oursToTheirs, group: "mooncake", pair: oursToTheirs, read: "READ", write: "WRITE", verify: verifiedNever, about: "Meridian's initiator, Mooncake's target", apart: true},
	{name: theirsToOurs, group: "mooncake", pair: theirsToOurs, read: "batch_transfer_sync_read", write: "batch_transfer_sync_write", verify: verifiedNever, about: "Mooncake's initiator, Meridian's target", apart: true},
	{name: relayed, group: "mooncake", pair: relayed, read: "batch_transfer_sync_read", write: "batch_transfer_sync_write", verify: verifiedNever, about: "Mooncake transfer engine, both sides, through the relay of one daemon of Meridian", apart: true},
	{name: ours, group: ours, pair: ours, read: "READ", write: "WRITE", verify: verifiedNever, about: "Meridian's transfer engine of Mooncake's protocol, both sides", apart: true},
	{name: "nixl-tcp", group: "nixl", pair: "nixl-tcp", read: "READ (emulated by UCX)", write: "WRITE", verify: verifiedNever, about: "NIXL, UCX over tcp"},
	{name: "nixl-cma", group: "nixl", pair: "nixl-cma", read: "READ", write: "WRITE", verify: verifiedNever, about: "NIXL, UCX over cma: process_vm_readv and writev"},
	{name: helperTCP, group: "nixl", pair: helperTCP, read: "READ (emulated by UCX)", write: "WRITE", verify: verifiedNever, about: "Meridian's helper, a NIXL target, UCX over tcp", apart: true, beside: "nixl-tcp"},
	{name: helperCMA, group: "nixl", pair: helperCMA, read: "READ", write: "WRITE", verify: verifiedNever, about: "Meridian's helper, a NIXL target, UCX over cma", apart: true, beside: "nixl-cma"},
	{name: "redis-unix", group: "redis", pair: "redis", mode: "unix", read: "GET, pipelined", write: "SET, pipelined", verify: verifiedNever, about: "Redis, Unix socket"},
	{name: "redis-tcp", group: "redis", pair: "redis", mode: "tcp", read: "GET, pipelined", write: "SET, pipelined", verify: verifiedNever, about: "Redis, TCP"},
	{name: plainTCP, group: groupPlain, pair: groupPlain, mode: "tcp", read: "bytes", write: "bytes", verify: verifiedNever, about: "bound: sockets without a protocol"},
	{name: "plain-tls", group: groupPlain, pair: groupPlain, mode: "tls", read: "bytes", write: "bytes", verify: verifiedNever, about: "bound: sockets without a protocol, TLS 1.3"},
	{name: "plain-unix", group: groupPlain, pair: groupPlain, mode: "unix", read: "bytes", write: "bytes", verify: verifiedNever, about: "bound: sockets without a protocol"},
	{name: "memcpy", group: pairMemory, pair: pairMemory, mode: "copy", read: "copy from shared memory", write: "copy to shared memory", verify: verifiedNever, about: "bound: one copy, no system call"},
	{name: hashOnly, group: pairMemory, pair: pairMemory, mode: "hash", read: "BLAKE3, one core", write: "BLAKE3, one core", verify: "nothing but that", about: "bound: what a core hashes of bytes just received"},
	{name: windowCost, group: pairMemory, pair: pairMemory, mode: windowCost, write: "copy and BLAKE3, one core", verify: "nothing but that", about: "what it costs to take a block out of a window", apart: true},
	{name: commitCost, group: pairMemory, pair: pairMemory, mode: windowCost, read: "copy and BLAKE3, one core", write: "copy and BLAKE3, one core", verify: "nothing but that", about: "what it costs to make a block of what was moved", apart: true},
}

// Names are the names that Options.Only takes: groups and systems.
func Names() []string {
	var out []string
	for _, s := range systems {
		for _, n := range []string{s.group, s.name} {
			if !s.apart && !slices.Contains(out, n) {
				out = append(out, n)
			}
		}
	}
	return out
}

func (s system) is(name string) bool { return name == s.name || name == s.group && !s.apart }

// does tells whether the system has the direction.
func (s system) does(op Op) bool {
	if op == Write {
		return s.write != ""
	}
	return s.read != ""
}

// of is the cell as the system runs it: what one core does is measured on one,
// whatever the streams.
func (s system) of(c Cell) Cell {
	if s.name == hashOnly || s.name == windowCost || s.name == commitCost {
		c.Streams = 1
	}
	return c
}

// own tells whether both processes are this program.
func (s system) own() bool {
	return slices.Contains([]string{groupLink, "engine", groupPlain, pairMemory, ours}, s.pair)
}
