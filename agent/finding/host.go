package finding

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"meridian/agent/config"
	"meridian/fabric/topology"
)

// Host is the view of a machine and a process that checks look at.
type Host struct {
	Config   *config.Config // what the daemon runs with; nil: not known
	Kinds    []config.FabricKind
	Env      []string // as os.Environ
	ReadFile func(name string) ([]byte, error)
	Mode     func(name string) (fs.FileMode, error) // permissions
	Limit    func(resource int) (soft uint64, err error)
	Memfd    func() error         // makes, seals and drops a memory file
	Synced   func() (bool, error) // is the clock synchronised?
	ShmBytes func() (uint64, error)
	// Devices are the NICs, RDMA ports and GPUs; nil: they are not looked at.
	Devices func() (topology.Host, error)
}

// ThisHost is the machine and the process that we run in.
func ThisHost(c *config.Config) *Host {
	return &Host{
		Config:   c,
		Env:      os.Environ(),
		ReadFile: os.ReadFile,
		Mode: func(name string) (fs.FileMode, error) {
			i, err := os.Stat(name)
			if err != nil {
				return 0, err
			}
			return i.Mode().Perm(), nil
		},
		Limit:    limit,
		Memfd:    tryMemfd,
		Synced:   clockSynced,
		ShmBytes: shmBytes,
		Devices:  func() (topology.Host, error) { return topology.Read(topology.Live()) },
	}
}

func limit(resource int) (uint64, error) {
	var r unix.Rlimit
	if err := unix.Getrlimit(resource, &r); err != nil {
		return 0, err
	}
	return r.Cur, nil
}

// tryMemfd does what the arena does with a segment, on one page: make, size,
// map for writing, seal, and see that a second writable map is refused.
func tryMemfd() error {
	fd, err := unix.MemfdCreate("meridian-doctor", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return fmt.Errorf("memfd_create: %w", err)
	}
	defer func() { _ = unix.Close(fd) }()
	page := os.Getpagesize()
	if err := unix.Fallocate(fd, 0, 0, int64(page)); err != nil {
		return fmt.Errorf("fallocate: %w", err)
	}
	b, err := unix.Mmap(fd, 0, page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("mmap: %w", err)
	}
	defer func() { _ = unix.Munmap(b) }()
	const seals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_FUTURE_WRITE | unix.F_SEAL_SEAL
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		return fmt.Errorf("seals: %w", err)
	}
	if second, err := unix.Mmap(fd, 0, page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err == nil {
		_ = unix.Munmap(second)
		return errors.New("seal FUTURE_WRITE is accepted and has no effect")
	}
	b[0] = 1 // the earlier map stays writable
	return nil
}

func clockSynced() (bool, error) {
	var t unix.Timex // no modes: only reads
	state, err := unix.Adjtimex(&t)
	if err != nil {
		return false, err
	}
	return state != unix.TIME_ERROR, nil
}

func shmBytes() (uint64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs("/dev/shm", &s); err != nil {
		return 0, err
	}
	return s.Blocks * uint64(s.Bsize), nil
}
