// Package llama is a node of a real model: it supervises an unmodified llama-server
// and gives its KV to the daemon as blocks, so that a prompt which one node has
// prefilled is decoded on another, and shared prefixes are computed once for all
// requests and nodes.
//
//	client ── OpenAI front ── Node ──┬── llama-server (a Unix socket in Config.Dir)
//	                                 └── engine session with the node's own daemon ── link ── peers
//
// A Node is an engine like any other: it stores blocks with PUT and reads them
// with ACQUIRE, which pulls what only a peer has. It implements openai.Backend.
// How a request runs is told at the top of generate.go.
//
// # Split
//
// A decode node whose daemon and peers lack more than Config.Remote tokens of a
// prompt asks its partner to prefill it (PrefillPath, beside the front), and pulls
// the blocks. A prefill node fills, and hands the rest of the request to its
// partner's front. Either goes on by itself when the other cannot. What a partner
// has forwarded (openai.Request.Hop) is never forwarded again.
//
// # Thinking
//
// What a request says of its thinking goes to the chat template, where that has a
// word for it (template.go); what it has none for, the node does itself, by a
// budget or by opening it, or refuses. Thinking is open where the template's own
// tail leaves it so, never by what a message says. From there on scheduler.Watch
// reads the text of each token, for a reader, for the budget, and for the daemon's
// router, which is told markers by their own ids.
//
// # Who goes first
//
// A scheduler's queue decides who has a slot (turns.go), and between two quanta, or two
// pieces of a prompt, who goes on (deal.go). A request that is to leave its slot stores
// what it has as blocks, and takes them back into the next (preempt.go).
//
// # Faults
//
// What is missing, refused or wrong on the way of KV is computed instead: a block
// that vanishes, a body that is not that of its checksum (each is hashed once more
// before it goes into a state, since llama-server would take it), a state that the
// server does not take, a partner that is away. A llama-server that ends is started
// again with empty slots; requests that it ran fail with 503. One that ends three
// times in a row within seconds, without having served, and one that is refused for
// what it is, are not started again: Down is then an ErrFailed (supervise.go).
//
// # Identity
//
// A server's keys name by content what computes the blocks (room identity). That is
// found anew at each start of the server. A model that is overwritten while a server
// has it open ends that server, before anything is stored under its keys.
//
// # Bounds
//
// Requests that wait for a slot, those of the background apart, bytes of a prompt, look-ups and states on their
// way are bounded: a state file exists once a slot, and its blocks are leased a few
// at a time.
//
// # Imports
//
// adapters/llamacpp, agent/client, agent/openai, internal/httpguard, scheduler,
// wire and the rooms below; nothing else of agent. It must never touch the daemon's
// store but through the engine socket.
package llama
