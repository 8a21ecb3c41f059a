package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"meridian/agent/adminpb"
	"meridian/agent/config"
	"meridian/wire"
)

// The exit codes.
const (
	exitOK          = 0
	exitFailed      = 1 // not found, or a check failed
	exitUsage       = 2
	exitUnreachable = 3
	exitRefused     = 4 // refused or not authorised
	exitIntegrity   = 5
)

// failure is an error with what the command line adds to it.
type failure struct {
	err  error
	hint string
	exit int
	code wire.Code // of errors.json; 0: none
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

func usage(format string, args ...any) error {
	return &failure{err: fmt.Errorf(format, args...), hint: "--help shows the flags and examples", exit: exitUsage}
}

// failed is a check that did not pass.
func failed(hint, format string, args ...any) error {
	return &failure{err: fmt.Errorf(format, args...), hint: hint, exit: exitFailed}
}

func integrity(hint, format string, args ...any) error {
	return &failure{err: fmt.Errorf(format, args...), hint: hint, exit: exitIntegrity, code: wire.CodeChecksum}
}

// A socketKind is one of the daemon's two sockets, as hints speak of them.
type socketKind struct{ name, flag, key string }

var (
	adminSocket  = socketKind{"admin", "--admin", "admin.socket"}
	engineSocket = socketKind{"engine", "--engine", "engine.socket"}
)

// named says how to name the socket.
func (k socketKind) named() string {
	return fmt.Sprintf("%s or %s names the %s socket, which is %s of the daemon's configuration", k.flag, config.EnvName(k.key), k.name, k.key)
}

// unreachable says why nobody answers at path, as far as the path shows it.
func (k socketKind) unreachable(path string, err error) error {
	f := &failure{err: err, exit: exitUnreachable, code: wire.CodeUnreachable}
	info, statErr := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrPermission):
		f.hint, f.exit, f.code = "the socket is for the daemon's own user: run as that user, or as root", exitRefused, wire.CodeDenied
	case errors.Is(statErr, fs.ErrNotExist):
		f.hint = "there is no such file: is meridiand running on this host? " + k.named()
	case statErr == nil && info.Mode()&fs.ModeSocket == 0:
		f.hint = path + " is no socket; " + k.named()
	case errors.Is(err, syscall.ECONNREFUSED):
		f.hint = "the socket is there and nobody listens: the daemon that made it has ended; start meridiand"
	default:
		f.hint = "is meridiand running on this host? " + k.named()
	}
	return f
}

// mistaken is for a socket whose listener speaks something else.
func (k socketKind) mistaken(path string, err error) error {
	return &failure{err: fmt.Errorf("%s is no %s socket of a daemon: %w", path, k.name, err), hint: k.named(), exit: exitUnreachable, code: wire.CodeUnreachable}
}

// asFailure is for what comes out of cobra: an error that is no failure was
// made by cobra itself, from the arguments.
func asFailure(err error) *failure {
	var f *failure
	if errors.As(err, &f) {
		return f
	}
	return &failure{err: err, hint: "--help shows the flags and examples", exit: exitUsage}
}

// asCommandFailure gives an error of a command its exit code and hint, from
// the code of errors.json that it carries, however it came here.
func asCommandFailure(err error) *failure {
	var f *failure
	if errors.As(err, &f) {
		return f
	}
	f = &failure{err: err, exit: exitFailed}
	if s, ok := status.FromError(err); ok {
		f.err = errors.New(s.Message())
		if d := adminpb.Detail(err); d != nil {
			f.code, f.hint = wire.Code(d.GetCode()), d.GetFix()
			f.exit = exitOf(f.code)
			return f
		}
		f.code, f.exit = plainStatus(s.Code())
		return f
	}
	for _, info := range wire.Codes() {
		if info.Code != wire.CodeOK && errors.Is(err, info.Code) {
			f.code, f.hint, f.exit = info.Code, info.Fix, exitOf(info.Code)
			return f
		}
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		f.code, f.hint, f.exit = wire.CodeDeadline, "give it more time by --timeout", exitUnreachable
		f.err = inWords(err)
	case errors.Is(err, context.Canceled):
		f.code = wire.CodeCancelled
		f.err = inWords(err)
	}
	return f
}

// inWords says in plain words what the standard library calls the end of a context.
func inWords(err error) error {
	return errors.New(strings.NewReplacer(context.Canceled.Error(), "interrupted before the end", context.DeadlineExceeded.Error(), "the time is over").Replace(err.Error()))
}

// plainStatus is for gRPC errors without a detail: those of the transport.
func plainStatus(c codes.Code) (wire.Code, int) {
	switch c {
	case codes.Unavailable:
		return wire.CodeUnreachable, exitUnreachable
	case codes.DeadlineExceeded:
		return wire.CodeDeadline, exitUnreachable
	case codes.PermissionDenied, codes.Unauthenticated:
		return wire.CodeDenied, exitRefused
	case codes.Unimplemented:
		return wire.CodeUnsupported, exitRefused
	case codes.NotFound:
		return wire.CodeAbsent, exitFailed
	case codes.Canceled:
		return wire.CodeCancelled, exitFailed
	}
	return wire.CodeInternal, exitFailed
}

// exitOf maps a code of errors.json to an exit code.
func exitOf(c wire.Code) int {
	switch c {
	case wire.CodeOK:
		return exitOK
	case wire.CodeChecksum, wire.CodeCRC, wire.CodeTruncated, wire.CodeMagic, wire.CodeVersion,
		wire.CodeTier, wire.CodePadding, wire.CodeTrailing:
		return exitIntegrity
	case wire.CodeDeadline, wire.CodeLaneLost, wire.CodeNoProgress, wire.CodeUnreachable, wire.CodeHelloTimeout:
		return exitUnreachable
	case wire.CodeDenied, wire.CodeNSUnknown, wire.CodeAuth, wire.CodeBusy, wire.CodeDraining, wire.CodeFull,
		wire.CodeUnsupported, wire.CodeGeometry, wire.CodeTooMany:
		return exitRefused
	case wire.CodeInvalid, wire.CodeTooLarge, wire.CodeManifest:
		return exitUsage
	}
	return exitFailed
}

// report writes a failure to standard error: one line and a hint, or an object
// when the output is JSON.
func (a *app) report(f *failure) {
	if a.output == "json" {
		type body struct {
			Message string `json:"message"`
			Hint    string `json:"hint,omitempty"`
			Code    uint16 `json:"code,omitempty"`
			Name    string `json:"name,omitempty"`
			Exit    int    `json:"exit"`
		}
		b := body{Message: oneLine(f.Error()), Hint: f.hint, Code: uint16(f.code), Exit: f.exit}
		if f.code != wire.CodeOK {
			b.Name = f.code.String()
		}
		enc := json.NewEncoder(a.err)
		enc.SetEscapeHTML(false)
		_ = enc.Encode(map[string]body{"error": b})
		return
	}
	text := "error: " + oneLine(f.Error()) + "\n"
	if f.hint != "" {
		text += "hint: " + oneLine(f.hint) + "\n"
	}
	_, _ = io.WriteString(a.err, plain(text)) // there is nobody to tell of a failure
}

// guessOutput looks for JSON in arguments that were never parsed, as when
// there is an unknown flag among them: a program that asked for JSON gets it.
func (a *app) guessOutput(args []string) {
	vars := a.variables()
	if vars["MERIDIAN_CLI_OUTPUT"] == "json" || vars["MERIDIAN_CLI_JSON"] == "true" {
		a.output = "json"
	}
	for i, arg := range args {
		switch arg {
		case "--json", "-ojson", "-o=json", "--output=json":
			a.output = "json"
		case "-o", "--output":
			if i+1 < len(args) {
				a.output = args[i+1]
			}
		}
	}
}

// oneLine sets a text in one line. The lines of errors that were joined stay apart.
func oneLine(s string) string {
	var b strings.Builder
	for line := range strings.Lines(s) {
		line = strings.Join(strings.Fields(line), " ")
		if line == "" {
			continue
		}
		if b.Len() > 0 {
			if !strings.ContainsAny(b.String()[b.Len()-1:], ".,:;?!") {
				b.WriteByte(';')
			}
			b.WriteByte(' ')
		}
		b.WriteString(line)
	}
	return b.String()
}
