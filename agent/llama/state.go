package llama

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"meridian/adapters/llamacpp"
	"meridian/agent/client"
	"meridian/internal/safefile"
	"meridian/wire"
)

// putBatch is how many blocks are staged and stored at a time.
const putBatch = 16

// file is the job's state file, as llama-server names it. A slot has one job at a
// time.
func (j *job) file() string { return fmt.Sprintf("slot-%d.bin", j.slot.id) }

func (j *job) path() string { return filepath.Join(j.n.files, j.file()) }

// keys are those of the first n tokens' blocks; the short one at the end is left
// out without tail.
func (j *job) keys(n int, tail bool) []wire.Key {
	hashes := llamacpp.Chain(j.tokens[:n], j.n.cfg.BlockTokens)
	if full := n / j.n.cfg.BlockTokens; !tail {
		hashes = hashes[:full]
	}
	ns := j.s.manifest.Namespace()
	keys := make([]wire.Key, len(hashes))
	for i := range hashes {
		keys[i] = wire.KeyOf(ns, hashes[i][:])
	}
	return keys
}

// assemble makes a state file of the first n tokens out of their blocks: those of
// this daemon, and those that it pulls. It returns how many tokens there are
// blocks for; the file is of use only if that is n. A block is written while its
// lease lasts, and hashed once more on its way: llama-server would take a wrong
// byte without a word.
func (j *job) assemble(ctx context.Context, n int) (got int, err error) {
	f, err := safefile.Open(j.path(), os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }() // the next state overwrites it
	out, err := llamacpp.NewAssembler(f, j.s.geometry, j.tokens[:n], j.n.cfg.BlockTokens)
	if err != nil {
		return 0, err
	}
	keys := j.keys(n, true)
	var l client.Lease
	for at := 0; at < len(keys); {
		batch := keys[at:min(len(keys), at+restoreBatch)]
		step := j.n.work.move(uint64(j.s.geometry.BlockBytes(len(batch) * j.n.cfg.BlockTokens)))
		err := j.s.engine.AcquireInto(ctx, &l, j.s.ns, batch, fetchOptions)
		step.end()
		if err != nil {
			return 0, err
		}
		for i := range l.Blocks {
			if err := j.write(out, at+i, &l.Blocks[i]); err != nil {
				l.Release()
				j.n.log.Debug("a block is missing", "index", at+i, "err", err)
				return at * j.n.cfg.BlockTokens, nil
			}
		}
		at += len(l.Blocks)
		l.Release()
	}
	return n, out.Finish()
}

// restoreBatch is how many blocks are leased at a time.
const restoreBatch = 64

// write puts one leased block into the state.
func (j *job) write(out *llamacpp.Assembler, i int, b *client.Block) error {
	if b.Err != nil {
		return b.Err
	}
	if err := b.Head.Check(b.Body); err != nil {
		j.n.stats.badBlocks.Add(1)
		j.n.log.Error("a block's bytes are not those of its checksum; it is not used", "index", i, "err", err)
		return err
	}
	if err := out.WriteBlock(i, b.Body); err != nil {
		return err
	}
	if err := b.Check(); err != nil {
		return err
	}
	j.restored += uint64(len(b.Body))
	return nil
}

// offer has the whole prompt in the daemon, for a partner that is about to pull
// it: what the slot held already may have left the daemon.
func (j *job) offer(ctx context.Context) error {
	first, err := j.missing(ctx, j.keys(j.prompt, true))
	if err != nil || first < 0 {
		return err
	}
	return j.save(ctx, j.prompt, first, wire.ThinkComplete, true)
}

// tier is that of prompt and answer, while their request runs here.
func (j *job) tier() wire.Tier {
	if j.req == 0 {
		return wire.ThinkComplete
	}
	return wire.OutputCritical
}

// keepPrompt stores the prompt's blocks that are new, the short one too: the same
// prompt may come again, here or at the partner.
func (j *job) keepPrompt(ctx context.Context) {
	if err := j.save(ctx, j.prompt, j.cached/j.n.cfg.BlockTokens, j.tier(), true); err != nil {
		j.n.log.Warn("a prompt's KV was not kept", "err", err)
	}
}

// leaveThinking acts on the end of thinking. Where the model's template keeps it,
// the blocks that lie wholly within it are stored, and the daemon offloads them;
// else nobody would read them again, and they are not.
func (j *job) leaveThinking(ctx context.Context) {
	if !j.s.marks.KeepsThinking {
		j.n.stats.droppedThinking.Add(uint64(j.think.Used()))
		return
	}
	bt := j.n.cfg.BlockTokens
	if err := j.save(ctx, len(j.tokens)-1, (j.prompt+bt-1)/bt, wire.ThinkActive, false); err != nil {
		j.n.log.Warn("the KV of thinking was not kept", "err", err)
	}
}

// keepAnswer stores what follows the prompt. After thinking that the next turn's
// prompt leaves out, nothing of it would be read again.
func (j *job) keepAnswer() {
	if j.think.Opened() && !j.s.marks.KeepsThinking || j.slot == nil { // it ended while it was preempted
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), saveTimeout)
	defer cancel()
	if err := j.save(ctx, len(j.tokens)-1, j.prompt/j.n.cfg.BlockTokens, j.tier(), false); err != nil {
		j.n.log.Warn("an answer's KV was not kept", "err", err)
	}
}

// save stores the blocks of the first n tokens from block first on, as far as the
// slot has them: the full ones. With tail all of n must be there, and the short
// block is stored too.
func (j *job) save(ctx context.Context, n, first int, tier wire.Tier, tail bool) error {
	keys := j.keys(n, tail)
	if first >= len(keys) {
		return nil
	}
	step := j.n.work.move(uint64(j.s.geometry.BlockBytes(n)))
	_, err := j.s.api.SaveSlot(ctx, j.slot.id, j.file())
	step.end()
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(j.path()) }()
	f, st, err := j.openState()
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if g := st.Geometry(); !g.Equal(j.s.geometry) {
		return fmt.Errorf("llama-server saved a state of another layout than it did at its start: %+v", g)
	}
	have := common(st.Tokens(), j.tokens)
	if have < n && tail {
		return fmt.Errorf("llama-server saved %d tokens, of which %d are the request's; wanted %d", len(st.Tokens()), have, n)
	}
	if have < n { // what was appended last has not been computed yet
		keys = keys[:have/j.n.cfg.BlockTokens]
	}
	if err := j.s.intact(); err != nil { // before anything is stored under its keys
		return err
	}
	j.n.stats.saves.Add(1)
	for at := first; at < len(keys); at += putBatch {
		if err := j.put(ctx, st, keys, at, min(len(keys), at+putBatch), n, tier); err != nil {
			return err
		}
	}
	return nil
}

// openState opens what llama-server has just saved.
func (j *job) openState() (*os.File, *llamacpp.State, error) {
	f, err := safefile.Open(j.path(), os.O_RDONLY, 0)
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	if err == nil {
		var st *llamacpp.State
		if st, err = llamacpp.OpenState(f, info.Size()); err == nil {
			return f, st, nil
		}
	}
	return nil, nil, errors.Join(err, f.Close())
}

// missing is the index of the first key that the daemon does not have here; -1 if
// it has all.
func (j *job) missing(ctx context.Context, keys []wire.Key) (int, error) {
	for at := 0; at < len(keys); at += lookupBatch {
		step := j.n.work.move(0)
		answers, err := j.s.engine.Has(ctx, j.s.ns, keys[at:min(len(keys), at+lookupBatch)], false)
		step.end()
		if err != nil {
			return 0, err
		}
		if i := slices.IndexFunc(answers, func(a client.Found) bool { return a.Err != nil || !a.Here }); i >= 0 {
			return at + i, nil
		}
	}
	return -1, nil
}

// put stores blocks from up to to of a state.
func (j *job) put(ctx context.Context, st *llamacpp.State, keys []wire.Key, from, to, n int, tier wire.Tier) error {
	step := j.n.work.move(uint64(j.s.geometry.BlockBytes((to - from) * j.n.cfg.BlockTokens)))
	defer step.end()
	blocks := make([]client.Block, 0, to-from)
	for i := from; i < to; i++ {
		first := i * j.n.cfg.BlockTokens
		count := min(j.n.cfg.BlockTokens, n-first)
		body, err := j.s.engine.Stage(ctx, j.s.geometry.BlockBytes(count))
		if err == nil {
			err = st.ReadBlock(first, count, body)
		}
		if err != nil {
			for _, b := range blocks {
				j.s.engine.Unstage(b.Body)
			}
			return err
		}
		blocks = append(blocks, client.Block{NS: j.s.ns, Key: keys[i], Tier: tier, Body: body, Req: j.req})
	}
	for _, err := range j.s.engine.Put(ctx, blocks) {
		switch {
		case err == nil:
			j.added++
			j.n.stats.storedBlocks.Add(1)
		case !errors.Is(err, wire.CodeExists):
			return err
		}
	}
	return nil
}
