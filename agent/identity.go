package agent

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"meridian/agent/config"
)

// identity is who this daemon is. The agent id survives restarts, the
// incarnation never does: it is how peers tell that everything they knew of
// this agent is gone.
type identity struct {
	name        string
	agent       [16]byte
	incarnation uint64
}

func newIdentity(cfg config.Agent, now time.Time) (identity, error) {
	id := identity{name: cfg.Name, incarnation: uint64(now.UnixNano())}
	text := cfg.ID
	if text == "" {
		var err error
		if text, err = keptID(filepath.Join(cfg.StateDir, "agent-id")); err != nil {
			return identity{}, fmt.Errorf("agent.state_dir: %w", err)
		}
	}
	b, err := hex.DecodeString(text)
	if err != nil || len(b) != len(id.agent) {
		return identity{}, fmt.Errorf("agent id %q: want 32 hexadecimal digits", text)
	}
	copy(id.agent[:], b)
	return id, nil
}

// keptID reads the id kept in path, or makes one. The file is linked into
// place, so that two daemons that start at once keep the same one.
func keptID(path string) (string, error) {
	if b, err := os.ReadFile(path); err == nil {
		return strings.TrimSpace(string(b)), nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", err
	}
	var raw [16]byte
	if _, err := rand.Read(raw[:]); err != nil {
		return "", err
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), "agent-id-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.Remove(tmp.Name()) }()
	_, err = tmp.WriteString(hex.EncodeToString(raw[:]) + "\n")
	if err = errors.Join(err, tmp.Sync(), tmp.Close()); err != nil {
		return "", err
	}
	if err := os.Link(tmp.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	b, err := os.ReadFile(path)
	return strings.TrimSpace(string(b)), err
}
