package llama

import (
	"strings"
	"syscall"
	"testing"

	"meridian/internal/child"
)

func TestADeathComesWithWhatCanBeDone(t *testing.T) {
	for signal, want := range map[syscall.Signal]string{
		syscall.SIGILL: "built for this processor", syscall.SIGSEGV: "by hand", syscall.SIGKILL: "memory", 0: "llama.args",
	} {
		if got := advice(&child.Death{Signal: signal}); !strings.Contains(got, want) {
			t.Errorf("%v: %q, want %q", signal, got, want)
		}
	}
}
