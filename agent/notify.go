package agent

import (
	"context"
	"net"
	"os"
	"strconv"
	"strings"
	"time"
)

// notify tells systemd about the daemon's state (sd_notify(3)): READY=1,
// STOPPING=1, WATCHDOG=1. Without NOTIFY_SOCKET it does nothing.
func notify(state string) error {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return nil
	}
	if strings.HasPrefix(path, "@") {
		path = "\x00" + path[1:]
	}
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	_, err = c.Write([]byte(state))
	return err
}

// watchdogEvery is half of what systemd asks for (sd_watchdog_enabled(3)), 0
// when it does not watch this process.
func watchdogEvery() time.Duration {
	if pid := os.Getenv("WATCHDOG_PID"); pid != "" && pid != strconv.Itoa(os.Getpid()) {
		return 0
	}
	usec, err := strconv.ParseUint(os.Getenv("WATCHDOG_USEC"), 10, 63)
	if err != nil {
		return 0
	}
	return time.Duration(usec) * time.Microsecond / 2
}

// watchdog reports that the daemon is alive for as long as alive answers.
func watchdog(ctx context.Context, alive func() bool) {
	every := watchdogEvery()
	if every <= 0 {
		return
	}
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			if alive() {
				_ = notify("WATCHDOG=1")
			}
		}
	}
}
