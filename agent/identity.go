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
	"meridian/internal/safefile"
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

// maxIDFile is more than an id with white space needs.
const maxIDFile = 1024

// keptID reads the id kept in path, or makes one. Of two daemons that start at
// once, one creates the file and both keep what it holds.
func keptID(path string) (string, error) {
	if b, err := safefile.Read(path, maxIDFile); err == nil {
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
	err := safefile.Create(path, []byte(hex.EncodeToString(raw[:])+"\n"), 0o600)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	b, err := safefile.Read(path, maxIDFile)
	return strings.TrimSpace(string(b)), err
}
