package child

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"
)

// Death is how one run of a child ended.
type Death struct {
	Name   string         // of the program
	Signal syscall.Signal // that ended it; 0: none
	Status int            // its exit status, where no signal ended it
	Lived  time.Duration
	// Lacks are the instruction sets that this processor does not have: those that
	// the child said it was built for, else those that newer processors have. After
	// SIGILL only.
	Lacks []string
	// Said is whether the child said that it was built for those in Lacks.
	Said bool
	// Last is what it said last that names a cause, one line; may be empty.
	Last string
}

// maxLast bounds what is told of a child's own words, in bytes.
const maxLast = 240

func (d *Death) Error() string {
	how := fmt.Sprintf("ended with exit status %d", d.Status)
	if d.Signal != 0 {
		how = "was ended by " + signalName(d.Signal) + ","
	}
	text := fmt.Sprintf("%s %s %v after its start", d.Name, how, d.Lived.Round(10*time.Millisecond))
	switch {
	case len(d.Lacks) > 0:
		cause := ": it was built for another processor, and this one lacks "
		if !d.Said {
			cause = ": it was probably built for another processor; of what newer ones have, this one lacks "
		}
		text += cause + strings.Join(d.Lacks, ", ")
	case d.Last != "":
		text += "; it said: " + d.Last
	}
	return text
}

// signals are those that end programs.
var signals = map[syscall.Signal]string{
	syscall.SIGABRT: "SIGABRT, its own abort", syscall.SIGBUS: "SIGBUS, a memory access beyond a file's end",
	syscall.SIGFPE: "SIGFPE, an arithmetic fault", syscall.SIGHUP: "SIGHUP", syscall.SIGILL: "SIGILL, an illegal instruction",
	syscall.SIGINT: "SIGINT", syscall.SIGKILL: "SIGKILL", syscall.SIGSEGV: "SIGSEGV, a wrong memory access",
	syscall.SIGSYS: "SIGSYS, a forbidden system call", syscall.SIGTERM: "SIGTERM", syscall.SIGTRAP: "SIGTRAP",
}

func signalName(s syscall.Signal) string {
	if name, ok := signals[s]; ok {
		return name
	}
	return fmt.Sprintf("signal %d (%v)", int(s), s)
}

// shellSignal is what a shell adds to a signal's number for the exit status of a
// program that the signal ended: the child may be a script.
const shellSignal = 128

// deathOf reads how a process ended, and what of its log names the cause.
func deathOf(name string, cmd *exec.Cmd, lived time.Duration, tail []string, built string) *Death {
	d := &Death{Name: name, Lived: lived, Status: -1, Last: lastWords(tail)}
	if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok {
		switch {
		case ws.Signaled():
			d.Signal = ws.Signal()
		case ws.ExitStatus() > shellSignal && signals[syscall.Signal(ws.ExitStatus()-shellSignal)] != "":
			d.Signal = syscall.Signal(ws.ExitStatus() - shellSignal)
		default:
			d.Status = ws.ExitStatus()
		}
	}
	if d.Signal == syscall.SIGILL {
		info, _ := os.ReadFile("/proc/cpuinfo") // without it nothing is said of the processor
		d.Lacks, d.Said = lacking(string(info), built)
	}
	return d
}

// causes are the words by which a line of a log names why a program ends.
var causes = regexp.MustCompile(`(?i)\b(error|failed|cannot|can't|unable|invalid|refused|fatal|abort|assert)`)

// lastWords is the last line that names a cause, else the last one.
func lastWords(tail []string) string {
	if len(tail) == 0 {
		return ""
	}
	last := tail[len(tail)-1]
	for i := len(tail) - 1; i >= 0; i-- {
		if causes.MatchString(tail[i]) {
			last = tail[i]
			break
		}
	}
	last = strings.Map(func(r rune) rune {
		if r < ' ' || r == utf8.RuneError {
			return '?'
		}
		return r
	}, last)
	if len(last) <= maxLast {
		return last
	}
	for cut := maxLast; ; cut-- {
		if utf8.RuneStart(last[cut]) {
			return last[:cut] + "…"
		}
	}
}

// instructionSets are those that llama.cpp's builds use, by its own name for each
// and by the kernel's. UCX needs AVX.
var instructionSets = []struct{ name, flag string }{
	{"SSE3", "pni"}, {"SSSE3", "ssse3"}, {"AVX", "avx"}, {"F16C", "f16c"}, {"AVX2", "avx2"}, {"FMA", "fma"}, {"BMI2", "bmi2"},
	{"AVX_VNNI", "avx_vnni"}, {"AVX512", "avx512f"}, {"AVX512_VBMI", "avx512vbmi"}, {"AVX512_VNNI", "avx512_vnni"},
	{"AVX512_BF16", "avx512_bf16"}, {"AMX_INT8", "amx_int8"},
}

// lacking lists the instruction sets that the processor of cpuinfo does not have,
// of those that the child's line says it was built for, else of all.
// None where cpuinfo does not tell.
func lacking(cpuinfo, built string) (lacks []string, said bool) {
	var flags string
	for line := range strings.Lines(cpuinfo) {
		if name, rest, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "flags" {
			flags = " " + strings.TrimSpace(rest) + " "
			break
		}
	}
	if flags == "" {
		return nil, false
	}
	var missing, used []string
	for _, s := range instructionSets {
		if strings.Contains(flags, " "+s.flag+" ") {
			continue
		}
		missing = append(missing, s.name)
		if strings.Contains(built, " "+s.name+" = 1") {
			used = append(used, s.name)
		}
	}
	if len(used) > 0 {
		return used, true
	}
	return missing, false
}
