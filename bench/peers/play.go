package peers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"meridian/adapters/mooncake/handshake"
	"meridian/bench/harness"
	"meridian/bench/measure"
)

// Roles of a process.
const (
	roleTarget    = "target"
	roleInitiator = "initiator"
)

// target is the far side of a pair that is this program.
type target interface {
	// prepare makes ready for a cell; what it returns reaches the initiator as JSON.
	prepare(c Cell) (peer any, err error)
	wipe(c Cell) error
	// verify compares blocks of the last cell that was prepared.
	verify(w []written) (bytes uint64, err error)
	close() error
}

// initiator is the near side of one system.
type initiator interface {
	prepare(ctx context.Context, c Cell, peer json.RawMessage) error
	// move does the k-th batch of a stream. Streams run at the same time; the
	// calls of one follow each other. In a check, seen is told what was moved;
	// it is nil otherwise.
	move(ctx context.Context, stream, k int, seen *seen) error
	close() error
}

// helped is an initiator whose work another process does.
type helped interface {
	helper() int
	via() string
}

// seen is told of one batch: of a read the bytes that arrived, of a write what
// went where. The bytes are the initiator's again when the call returns.
type seen struct {
	read func(j int, body []byte) error
	put  func(j int, block uint64)
	// compared adds bytes that the initiator itself held against something.
	compared func(bytes uint64)
}

// Play is the whole of a process of a pair: args are the pair, the role and a
// folder for sockets, certificates and configurations.
func Play(ctx context.Context, args []string, in io.Reader, out io.Writer) (err error) {
	if len(args) != 3 {
		return fmt.Errorf("want PAIR ROLE DIR, got %q", args)
	}
	if args[1] == roleRelay {
		return playRelay(ctx, args[2])
	}
	p := &player{dir: args[2], pair: args[0], near: map[string]*nearSide{}}
	defer func() { err = errors.Join(err, p.close()) }()
	if args[1] == roleTarget {
		if p.far, err = newTarget(args[0], args[2]); err != nil {
			return harness.NewWriter(out).Put(answer{Error: err.Error()})
		}
	}
	return harness.Serve(in, out, answer{}, func(c command) answer {
		a, err := p.do(ctx, c)
		if err != nil {
			return answer{Error: err.Error()}
		}
		return a
	})
}

// player is such a process.
type player struct {
	pair, dir string
	far       target               // of a target
	near      map[string]*nearSide // of an initiator, by mode
}

// nearSide is an initiator with the cell that it is ready for.
type nearSide struct {
	initiator
	order order
	done  []int // batches that each stream has done
}

func (p *player) do(ctx context.Context, c command) (answer, error) {
	if p.far != nil {
		return p.asTarget(c)
	}
	n := p.near[c.Mode]
	if n == nil {
		if c.Do != doPrepare {
			return answer{}, fmt.Errorf("%s before %s", c.Do, doPrepare)
		}
		i, err := newInitiator(p.pair, c.Mode, p.dir)
		if err != nil {
			return answer{}, err
		}
		n = &nearSide{initiator: i}
		p.near[c.Mode] = n
	}
	switch c.Do {
	case doPrepare:
		n.order, n.done = orderOf(c.Cell), make([]int, c.Streams)
		err := n.prepare(ctx, c.Cell, c.Peer)
		var a answer
		if h, has := n.initiator.(helped); has && err == nil {
			a.Helper = h.helper()
		}
		return a, err
	case doCheck:
		a, err := n.check(ctx)
		if h, has := n.initiator.(helped); has && err == nil {
			a.Via = h.via()
		}
		return a, err
	case doRun:
		return n.run(ctx, c)
	}
	return answer{}, fmt.Errorf("unknown order %q", c.Do)
}

func (p *player) asTarget(c command) (a answer, err error) {
	switch c.Do {
	case doPrepare:
		peer, err := p.far.prepare(c.Cell)
		if err != nil {
			return a, err
		}
		a.Peer, err = json.Marshal(peer)
		return a, err
	case doWipe:
		return a, p.far.wipe(c.Cell)
	case doVerify:
		a.Bytes, err = p.far.verify(c.Wrote)
		return a, err
	}
	return a, fmt.Errorf("unknown order %q", c.Do)
}

// check moves one batch a stream and looks at it.
func (n *nearSide) check(ctx context.Context) (answer, error) {
	var a answer
	o := n.order
	for w := range o.Streams {
		k := n.done[w]
		n.done[w]++
		s := &seen{
			read: func(j int, body []byte) error {
				if uint64(len(body)) != o.Size {
					return fmt.Errorf("item %d has %d bytes, want %d", j, len(body), o.Size)
				}
				a.Bytes += o.Size
				return expect(body, seedRemote, uint64(o.item(w, k, j))*o.Size)
			},
			put: func(j int, block uint64) {
				a.Bytes += o.Size
				a.Wrote = append(a.Wrote, written{block, o.local(w, j)})
			},
			compared: func(bytes uint64) { a.Bytes += bytes },
		}
		if err := n.move(ctx, w, k, s); err != nil {
			return a, err
		}
	}
	return a, nil
}

func (n *nearSide) run(ctx context.Context, c command) (answer, error) {
	took, elapsed, err := measure.During(len(n.done), time.Duration(c.MS)*time.Millisecond, func(w int) error {
		n.done[w]++
		return n.move(ctx, w, n.done[w]-1, nil)
	})
	if err != nil {
		return answer{}, err
	}
	a := answer{Bytes: uint64(len(took)) * c.batchBytes(), Seconds: elapsed.Seconds(), Took: make([]int64, len(took))}
	for i, t := range took {
		a.Took[i] = t.Nanoseconds()
	}
	return a, nil
}

func (p *player) close() error {
	var errs []error
	if p.far != nil {
		errs = append(errs, p.far.close())
	}
	for _, n := range p.near {
		errs = append(errs, n.close())
	}
	return errors.Join(errs...)
}

func newTarget(pair, dir string) (target, error) {
	switch pair {
	case groupLink:
		return newLinkTarget(dir)
	case "engine":
		return newEngineTarget(dir), nil
	case groupPlain:
		return newPlainTarget(dir)
	case pairMemory:
		return &memoryTarget{}, nil
	case ours, theirsToOurs:
		return newTransferTarget(), nil
	}
	return nil, fmt.Errorf("no target of the pair %q here", pair)
}

func newInitiator(pair, mode, dir string) (initiator, error) {
	switch pair {
	case groupLink:
		return &linkInitiator{mode: mode, dir: dir, pushed: putCounter{mode: byte(slices.Index(linkModes, mode))}}, nil
	case "engine":
		return &engineInitiator{touch: mode == "touch"}, nil
	case groupPlain:
		return &plainInitiator{mode: mode, dir: dir}, nil
	case "redis":
		return &redisInitiator{mode: mode}, nil
	case pairMemory:
		switch mode {
		case hashOnly:
			return &hashInitiator{}, nil
		case windowCost:
			return &windowInitiator{}, nil
		}
		return &memoryInitiator{}, nil
	case helperTCP, helperCMA:
		return &nixlInitiator{dir: dir, pair: pair}, nil
	case ours, oursToTheirs:
		return &transferInitiator{resolver: &handshake.Client{}}, nil
	}
	return nil, fmt.Errorf("no initiator of the pair %q here", pair)
}
