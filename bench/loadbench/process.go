package loadbench

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"meridian/agent"
	"meridian/agent/config"
	"meridian/agent/openers"
	"meridian/bench/harness"
	"meridian/bench/linkbench"
)

// The roles that this program takes when a run starts it again.
const (
	roleDaemon = "daemon" // CONFIG PORTSFILE
	rolePlain  = "plain"  // BLOCKSIZE BYTES CONGESTION PORTSFILE
)

// Play is the whole of a process with a role; it ends at SIGTERM, or for the
// plain server at the end of in.
func Play(ctx context.Context, args []string, in io.Reader) error {
	switch {
	case len(args) == 3 && args[0] == roleDaemon:
		cfg, _, err := openers.Load(config.Options{Path: args[1]})
		if err != nil {
			return err
		}
		return agent.Run(ctx, cfg, agent.Options{Version: agent.BuildVersion(), Log: slog.New(slog.NewTextHandler(os.Stderr, nil))}, args[2])
	case len(args) == 5 && args[0] == rolePlain:
		return playPlain(args[1:], in)
	}
	return fmt.Errorf("want %s CONFIG PORTSFILE or %s BLOCKSIZE BYTES CONGESTION PORTSFILE, got %q", roleDaemon, rolePlain, args)
}

func playPlain(args []string, in io.Reader) error {
	var size, set uint64
	if _, err := fmt.Sscan(args[0]+" "+args[1], &size, &set); err != nil {
		return fmt.Errorf("%q: %w", args, err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s := linkbench.ServePlain(args[2], l)
	defer s.Close()
	memory := make([]byte, set)
	var blocks [][]byte
	for at := uint64(0); at+size <= set; at += size {
		fill(memory[at:at+size], at)
		blocks = append(blocks, memory[at:at+size])
	}
	s.Show(blocks)
	ports, err := json.Marshal(map[string][]string{rolePlain: {l.Addr().String()}})
	if err != nil {
		return err
	}
	if err := os.WriteFile(args[3]+".new", ports, 0o600); err != nil {
		return err
	}
	if err := os.Rename(args[3]+".new", args[3]); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, in)
	return err
}

// fill writes bytes that are no zeros: the kernel maps one page for those.
func fill(b []byte, seed uint64) {
	x := seed*0x9e3779b97f4a7c15 + 1
	for ; len(b) > 0; b = b[min(8, len(b)):] {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		var word [8]byte
		binary.LittleEndian.PutUint64(word[:], x)
		copy(b, word[:])
	}
}

// startWait bounds how long a process may take until it listens.
const startWait = time.Minute

// process is a daemon or plain server of a run.
type process struct {
	*harness.Process
	ports map[string][]string
}

// start starts this program again in a role, on the given processors (none: all),
// and waits until it listens. The last argument is the ports file, which is added.
func (r *run) start(ctx context.Context, name string, cpus []int, args ...string) (*process, error) {
	r.started++
	name = fmt.Sprintf("%s-%d", name, r.started)
	path := filepath.Join(r.dir, name+".ports")
	p, err := harness.Start(name, harness.Again(r.opt.Self, append(args[:len(args):len(args)], path)...),
		harness.Options{Log: harness.LogIn(r.dir, name), Term: args[0] == roleDaemon, CPUs: cpus})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, startWait)
	defer cancel()
	ports, err := p.Ports(ctx, path)
	if err != nil {
		return nil, errors.Join(err, p.End())
	}
	return &process{p, ports}, nil
}

// ready waits until the daemon says that it is: all its peers are there.
func (p *process) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startWait)
	defer cancel()
	err := harness.Poll(ctx, p.Process, func() error {
		_, err := p.get(ctx, "/readyz")
		return err
	})
	if err != nil {
		return fmt.Errorf("%s is not ready: %w%s", p.Name, err, p.Tail())
	}
	return nil
}

// get returns what the daemon answers at a path.
func (p *process) get(ctx context.Context, path string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.address("http")+path, nil)
	if err != nil {
		return nil, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %.200s", res.Status, bytes.TrimSpace(b))
	}
	return b, err
}

const (
	// settleFor is for how long the memory that is ready stays the same before it
	// counts as all that the daemon makes.
	settleFor = 300 * time.Millisecond
	// settleWait bounds the wait for that; a daemon that goes on is measured as it is.
	settleWait = 10 * time.Second
)

// settled waits until the daemon makes no more memory ready ahead of its use, and
// returns how many bytes are.
func (p *process) settled(ctx context.Context) (ahead uint64, err error) {
	var since time.Time
	for end := time.Now().Add(settleWait); time.Now().Before(end); {
		b, err := p.get(ctx, "/metrics")
		if err != nil {
			return 0, err
		}
		_, value, _ := strings.Cut(string(b), "\n"+aheadMetric+" ")
		value, _, _ = strings.Cut(value, "\n")
		f, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return 0, fmt.Errorf("%s of %s: %w", aheadMetric, p.Name, err)
		}
		switch now := uint64(f); {
		case since.IsZero() || now != ahead:
			since, ahead = time.Now(), now
		case time.Since(since) > settleFor:
			return ahead, nil
		}
		time.Sleep(settleFor / 10)
	}
	return ahead, nil
}

// aheadMetric is how much memory a daemon has ready.
const aheadMetric = "meridian_block_manager_ahead_bytes"

// address is where the process listens for kind, "" for nowhere.
func (p *process) address(kind string) string {
	if a := p.ports[kind]; len(a) > 0 {
		return a[0]
	}
	return ""
}
