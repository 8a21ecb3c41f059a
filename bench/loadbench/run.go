package loadbench

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"meridian/agent/config"
	"meridian/bench/linkbench"
	"meridian/bench/measure"
	"meridian/wire"
)

// run is one measurement of everything.
type run struct {
	opt     Options
	dir     string
	psk     string
	started int    // processes so far
	ahead   uint64 // bytes that the last puller had ready before its first load
}

// Run measures. Each block size starts its holders anew, and each round the
// daemon that loads from them.
func Run(ctx context.Context, opt Options) (_ Report, err error) {
	if err := opt.Check(); err != nil {
		return Report{}, err
	}
	rep := Report{Host: measure.ThisHost(), Congestion: opt.Congestion,
		Streams: opt.streams(), Bytes: opt.Bytes, Rounds: opt.Rounds}
	r := &run{opt: opt, dir: opt.Dir}
	if r.dir == "" {
		if r.dir, err = os.MkdirTemp("", "meridian-load-"); err != nil {
			return rep, err
		}
		defer func() { _ = os.RemoveAll(r.dir) }()
	}
	var key [16]byte
	_, _ = rand.Read(key[:]) // never fails
	r.psk = hex.EncodeToString(key[:])
	for _, size := range opt.Sizes {
		if err := r.size(ctx, size, &rep); err != nil {
			return rep, fmt.Errorf("blocks of %s: %w", config.FormatBytes(uint64(size)), err)
		}
		rep.AheadBytes = r.ahead
	}
	return rep, nil
}

// size measures blocks of one size.
func (r *run) size(ctx context.Context, size uint32, rep *Report) (err error) {
	say := func(what string) { r.opt.Progress(what + ", blocks of " + config.FormatBytes(uint64(size))) }
	say("PUT")
	put, err := r.puts(ctx, size)
	if err != nil {
		return err
	}
	rep.Puts = append(rep.Puts, put)

	var holders []*process
	defer func() {
		for _, h := range holders {
			err = errors.Join(err, h.End())
		}
	}()
	for _, n := range r.opt.Holders {
		for len(holders) < n {
			say(fmt.Sprintf("filling holder %d", len(holders)+1))
			h, err := r.holder(ctx, size, len(holders))
			if err != nil {
				return err
			}
			holders = append(holders, h)
		}
		say(fmt.Sprintf("load from %d", n))
		l, err := r.loads(ctx, size, holders[:n])
		if err != nil {
			return err
		}
		rep.Loads = append(rep.Loads, l)
	}
	if runtime.NumCPU() > 1 {
		say("load with the puller on one processor and on two")
		c, err := r.cores(ctx, size, holders)
		if err != nil {
			return err
		}
		rep.Cores = append(rep.Cores, c)
	}
	return nil
}

// loads measures rounds of: sockets and hash, a cold load, a warm one.
func (r *run) loads(ctx context.Context, size uint32, holders []*process) (l Load, err error) {
	l = Load{BlockBytes: size, Holders: len(holders)}
	f, err := r.newFloor(ctx, size, len(holders))
	if err != nil {
		return l, err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	var plain, hash, cold, warm, toBound, toWarm []float64
	for range r.opt.Rounds {
		s, h, err := f.measure()
		if err != nil {
			return l, err
		}
		got, err := r.load(ctx, size, holders, nil)
		if err != nil {
			return l, err
		}
		plain, hash, cold, warm = append(plain, s), append(hash, h), append(cold, got.cold), append(warm, got.warm)
		toBound, toWarm = append(toBound, got.warm/measure.Bound(s, h, runtime.NumCPU())), append(toWarm, got.cold/got.warm)
	}
	l.Plain, l.Hash, l.Cold, l.Warm = measure.Median(plain), measure.Median(hash), measure.Median(cold), measure.Median(warm)
	l.Bound = measure.Bound(l.Plain, l.Hash, runtime.NumCPU())
	l.WarmToBound, l.ColdToWarm = measure.Median(toBound), measure.Median(toWarm)
	return l, nil
}

// cores measures warm loads by a daemon on one processor, and on two.
func (r *run) cores(ctx context.Context, size uint32, holders []*process) (Cores, error) {
	c := Cores{BlockBytes: size, Holders: len(holders)}
	var one, two, ratio, most []float64
	for range r.opt.Rounds {
		a, err := r.load(ctx, size, holders, []int{0})
		if err != nil {
			return c, err
		}
		b, err := r.load(ctx, size, holders, []int{0, 1})
		if err != nil {
			return c, err
		}
		one, two, ratio = append(one, a.warm), append(two, b.warm), append(ratio, b.warm/a.warm)
		most = append(most, mostRatio(b.puller, b.holders, runtime.NumCPU()))
	}
	c.One, c.Two, c.Ratio, c.Most = measure.Median(one), measure.Median(two), measure.Median(ratio), measure.Median(most)
	return c, nil
}

// mostRatio is how much a second processor can give a puller at most that shares all
// processors with its holders, by the processor time of both ends for the same bytes.
func mostRatio(puller, holders time.Duration, processors int) float64 {
	p := puller.Seconds()
	all := (puller + holders).Seconds() / float64(processors) // nothing idle
	return max(p, all) / max(p/2, all)
}

// loaded is two loads by a new daemon: their rates in GB/s, and the processor time
// that the second one took at both ends.
type loaded struct {
	cold, warm      float64
	puller, holders time.Duration
}

// load starts a daemon on some processors and loads everything twice.
func (r *run) load(ctx context.Context, size uint32, holders []*process, cpus []int) (l loaded, err error) {
	p, err := r.daemon(ctx, "puller", cpus, holders)
	if err != nil {
		return l, err
	}
	defer func() { err = errors.Join(err, p.End()) }()
	if err := p.ready(ctx); err != nil {
		return l, err
	}
	e, err := dial(ctx, p, size)
	if err != nil {
		return l, err
	}
	defer func() { err = errors.Join(err, e.close()) }()
	if r.ahead, err = p.settled(ctx); err != nil {
		return l, err
	}
	keys := r.opt.keys(size, 0)
	if l.cold, err = e.load(ctx, keys); err != nil {
		return l, fmt.Errorf("cold load: %w%s", err, p.Tail())
	}
	l.puller, l.holders = -cpu(p), -cpu(holders...)
	if l.warm, err = e.load(ctx, keys); err != nil {
		return l, fmt.Errorf("warm load: %w%s", err, p.Tail())
	}
	l.puller, l.holders = l.puller+cpu(p), l.holders+cpu(holders...)
	return l, nil
}

// cpu is the processor time of processes; that of one that has ended is not counted.
func cpu(of ...*process) (sum time.Duration) {
	for _, p := range of {
		t, _ := p.CPU()
		sum += t
	}
	return sum
}

// puts measures rounds of: copy and hash, PUTs into a new daemon, PUTs again once
// all of its arena was used.
func (r *run) puts(ctx context.Context, size uint32) (Put, error) {
	put := Put{BlockBytes: size}
	var copied, summed, cold, warm, toBound []float64
	for range r.opt.Rounds {
		c, s := copyRates(int(size), r.opt.Round/2)
		a, b, err := r.put(ctx, size)
		if err != nil {
			return put, err
		}
		copied, summed, cold, warm = append(copied, c), append(summed, s), append(cold, a), append(warm, b)
		toBound = append(toBound, b/putBound(c, s, runtime.NumCPU()))
	}
	put.Copy, put.CopySum, put.Cold, put.Warm = measure.Median(copied), measure.Median(summed), measure.Median(cold), measure.Median(warm)
	put.Bound, put.WarmToBound = putBound(put.Copy, put.CopySum, runtime.NumCPU()), measure.Median(toBound)
	return put, nil
}

func (r *run) put(ctx context.Context, size uint32) (cold, warm float64, err error) {
	p, err := r.daemon(ctx, "putter", nil, nil)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, p.End()) }()
	e, err := dial(ctx, p, size)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, e.close()) }()
	if _, err := p.settled(ctx); err != nil {
		return 0, 0, err
	}
	if cold, err = e.put(ctx, r.opt.keys(size, 0)); err != nil {
		return 0, 0, err
	}
	// The arena is larger than what was put: the next ones still go where nothing was.
	if _, err = e.put(ctx, r.opt.keys(size, 1)); err != nil {
		return 0, 0, err
	}
	warm, err = e.put(ctx, r.opt.keys(size, 2))
	return cold, warm, err
}

// holder starts the i-th holder and puts all blocks there.
func (r *run) holder(ctx context.Context, size uint32, i int) (*process, error) {
	p, err := r.daemon(ctx, holderName(i), nil, nil)
	if err != nil {
		return nil, err
	}
	e, err := dial(ctx, p, size)
	if err == nil {
		_, err = e.put(ctx, r.opt.keys(size, 0))
		err = errors.Join(err, e.close())
	}
	if err != nil {
		return nil, errors.Join(err, p.End())
	}
	return p, nil
}

func holderName(i int) string { return "holder" + strconv.Itoa(i) }

// daemon starts one with its own configuration: a holder listens for the puller,
// the puller dials its holders.
func (r *run) daemon(ctx context.Context, name string, cpus []int, holders []*process) (*process, error) {
	base := filepath.Join(r.dir, fmt.Sprintf("%s-%d", name, r.started+1))
	var peers strings.Builder
	listen, ahead := "", ""
	if r.opt.Ahead != nil {
		ahead = fmt.Sprintf("[arena]\nahead_bytes = %d\n", *r.opt.Ahead)
	}
	if len(holders) == 0 {
		listen = `"tcp://127.0.0.1:0"`
		fmt.Fprintf(&peers, "[[link.peer]]\nname = \"puller\"\ntenants = [%q]\n", tenant)
	}
	for i, h := range holders {
		fmt.Fprintf(&peers, "[[link.peer]]\nname = %q\naddress = %q\ntenants = [%q]\n", holderName(i), h.address("link"), tenant)
	}
	text := fmt.Sprintf(`[agent]
name = %q
state_dir = %q
ready_min_peers = %d
find_timeout = "10s" # a holder that is slow on a busy machine is no miss here
[kv_memory]
capacity_bytes = %d
[engine]
socket = %q
%s[admin]
socket = %q
[link]
listen = [%s]
psk = %q
congestion = %q
[security]
tenants = [%q]
[disagg]
enabled = true
fabric = "link"
%s`, name, base+".state", len(holders), r.opt.capacity(), base+".engine", ahead, base+".admin", listen, r.psk, r.opt.Congestion, tenant, peers.String())
	path := base + ".toml"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return nil, err
	}
	return r.start(ctx, name, cpus, roleDaemon, path)
}

// floor is what the machine itself does: plain sockets, out of as many processes as
// there are holders, and the hash.
type floor struct {
	servers []*process
	readers []*linkbench.PlainReader
	opt     Options
	size    uint32
}

// plainBatch is the bytes of one plain read: more only falls out of the caches.
const plainBatch = 16 << 20

func (r *run) newFloor(ctx context.Context, size uint32, servers int) (*floor, error) {
	f := &floor{opt: r.opt, size: size}
	all := int(r.opt.plainSet() / uint64(size))
	batch := max(1, min(all, plainBatch/int(size)))
	for range servers {
		p, err := r.start(ctx, rolePlain, nil, rolePlain, fmt.Sprint(size), fmt.Sprint(r.opt.plainSet()), r.opt.Congestion)
		if err != nil {
			return nil, errors.Join(err, f.close())
		}
		f.servers = append(f.servers, p)
		for i := range r.opt.streams() {
			c, err := linkbench.DialPlain(p.address(rolePlain), r.opt.Congestion, size, batch, all, i)
			if err != nil {
				return nil, errors.Join(err, f.close())
			}
			f.readers = append(f.readers, c)
		}
	}
	return f, nil
}

// measure returns S and H in GB/s.
func (f *floor) measure() (plain, hash float64, err error) {
	if plain, err = linkbench.PlainRate(f.readers, f.opt.Round); err != nil {
		return 0, 0, fmt.Errorf("plain socket: %w", err)
	}
	return plain, linkbench.HashRate(f.readers[0].Buffer(), int(f.size), f.opt.Round/2), nil
}

func (f *floor) close() (err error) {
	for _, c := range f.readers {
		_ = c.Close()
	}
	for _, p := range f.servers {
		err = errors.Join(err, p.End())
	}
	return err
}

// copyRates are one core's copy, and its copy and hash in one pass, over more
// bytes than caches hold.
func copyRates(size int, round time.Duration) (copied, summed float64) {
	n := max(1, plainBatch*4/size)
	from, to := make([]byte, n*size), make([]byte, n*size)
	fill(from, 1)
	copy(to, from)
	rate := func(f func(to, from []byte)) float64 {
		bytes := 0
		began := time.Now()
		for time.Since(began) < round {
			for at := 0; at < len(from); at += size {
				f(to[at:at+size], from[at:at+size])
			}
			bytes += len(from)
		}
		return float64(bytes) / time.Since(began).Seconds() / 1e9
	}
	return rate(func(to, from []byte) { copy(to, from) }), rate(func(to, from []byte) { wire.CopySum(to, from) })
}

// putBound is the rate that no PUT can exceed: an engine's one thread copies
// into the ring, and all copying and hashing together is work for the cores.
func putBound(copied, summed float64, cores int) float64 {
	if copied <= 0 || summed <= 0 {
		return 0
	}
	return min(copied, float64(cores)/(1/copied+1/summed))
}
