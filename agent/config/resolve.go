package config

import (
	"os"
	"path/filepath"
	"strings"

	"meridian/agent/client"
)

// resolve fills in what depends on the host: names, places, "auto".
func (l *loader) resolve(memory Memory) {
	c := l.cfg
	if c.Agent.Name == "" {
		c.Agent.Name, _ = os.Hostname()
	}
	if c.Agent.StateDir == "" {
		c.Agent.StateDir = l.stateDir()
	}
	if c.Agent.ReadyMinPeers == Auto {
		c.Agent.ReadyMinPeers = min(len(c.Peers()), 1)
	}
	if c.Engine.Socket == "" {
		c.Engine.Socket = client.DefaultEngineSocket()
	}
	if c.Admin.Socket == "" {
		c.Admin.Socket = client.DefaultAdminSocket()
	}
	if c.Llama.On() && c.Llama.Name == "" {
		c.Llama.Name = strings.TrimSuffix(filepath.Base(c.Llama.Model), filepath.Ext(c.Llama.Model))
	}
	if c.Llama.Dir == "" {
		c.Llama.Dir = filepath.Join("/dev/shm", "meridian-"+c.Agent.Name)
	}
	for key, path := range map[string]*string{
		"llama.model": &c.Llama.Model, "llama.server": &c.Llama.Server, "llama.dir": &c.Llama.Dir,
		"agent.state_dir": &c.Agent.StateDir, "agent.topology_file": &c.Agent.TopologyFile,
		"engine.socket": &c.Engine.Socket,
		"admin.socket":  &c.Admin.Socket,
	} {
		l.absolute(key, path)
	}
	for k := range fixedKinds(c.kinds) {
		for _, t := range k.fixed.tables {
			l.rebase(t.name, t.settings(c))
		}
	}
	c.KVMemory.Capacity = c.KVMemory.setting.bytes
	if c.KVMemory.setting.auto {
		c.KVMemory.Capacity, c.KVMemory.CapacityNote = memory.auto(c.Arena.Extent)
	}
}

func (l *loader) stateDir() string {
	if os.Getuid() == 0 {
		return "/var/lib/meridian"
	}
	if d := l.vars["XDG_STATE_HOME"]; filepath.IsAbs(d) {
		return filepath.Join(d, "meridian")
	}
	return filepath.Join(l.vars["HOME"], ".local", "state", "meridian")
}
