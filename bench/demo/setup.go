package demo

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"meridian/bench/measure"
)

// The names of the two daemons.
const (
	namePrefill = "prefill"
	nameDecode  = "decode"
)

// writeConfig writes a daemon's configuration: a complete example of one.
func (r *runner) writeConfig(name string, capacity uint64, listen bool, peerAddress string) (string, error) {
	peer := nameDecode
	if name == nameDecode {
		peer = namePrefill
	}
	listeners, fabric, through := "", "link", false
	if listen {
		listeners = `"tcp://127.0.0.1:0"`
	}
	peers := fmt.Sprintf("[[link.peer]]\nname = %q\naddress = %q\ntenants = [\"demo\"]\n", peer, peerAddress)
	if r.opt.Fabric == "synthetic" {
		listeners, fabric, peers, through = "", "nixl-synth", "", name == namePrefill
	}
	text := fmt.Sprintf(`[agent]
name = %q
state_dir = %q
[kv_memory]
capacity_bytes = %d
[engine]
socket = %q
[admin]
socket = %q
[link]
listen = [%s]
psk = %q
congestion = %q
[security]
tenants = ["demo"]
[disagg]
enabled = true
fabric = %q
write_through = %t
%s`, name, filepath.Join(r.dir, name+".state"), capacity, r.socket(name, "engine"), r.socket(name, "admin"),
		listeners, r.psk, measure.Congestion(), fabric, through, peers)
	path := filepath.Join(r.dir, name+".toml")
	return path, os.WriteFile(path, []byte(text), 0o600)
}

// corrupted asks the process of both daemons what their fabric has corrupted.
func (r *runner) corrupted(ctx context.Context) (int, error) {
	var c corrupted
	if err := r.world.Ask(ctx, order{}, &c); err != nil {
		return 0, fmt.Errorf("%s: %w%s", r.world.Name, err, r.world.Tail())
	}
	return int(c.N), nil
}

func (r *runner) socket(name, kind string) string {
	return filepath.Join(r.dir, name+"."+kind+".sock")
}
