package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"
)

func TestCodeText(t *testing.T) {
	if got := CodeNSUnknown.String(); got != "NS_UNKNOWN" {
		t.Errorf("String: %q", got)
	}
	if got := fmt.Sprintf("%v %s", CodeAbsent, fmt.Errorf("block 7: %w", CodeAbsent)); got != "ABSENT block 7: ABSENT" {
		t.Errorf("formatted: %q", got)
	}
	for _, c := range []Code{1, 99, 999, 65535} {
		if want := "code " + strconv.Itoa(int(c)); c.String() != want || c.Error() != want {
			t.Errorf("unknown code: %q, %q, want %q", c.String(), c.Error(), want)
		}
	}
}

func TestEveryCodeIsFoundByNumberAndName(t *testing.T) {
	list := Codes()
	if len(list) == 0 || list[0].Code != CodeOK {
		t.Fatalf("Codes() = %+v", list)
	}
	for i, e := range list {
		if i > 0 && e.Code <= list[i-1].Code {
			t.Errorf("%v does not come after %v", e.Code, list[i-1].Code)
		}
		if e.Code.String() != e.Name || e.Text == "" || e.Fix == "" || e.Scope == "" {
			t.Errorf("incomplete: %+v", e)
		}
		number := strconv.Itoa(int(e.Code))
		for _, s := range []string{
			number, "MRDN-" + number, "mrdn" + number, "code " + number, "Code" + number,
			e.Name, strings.ToLower(e.Name), strings.ReplaceAll(e.Name, "_", "-"), "MRDN_" + e.Name,
			"code " + strings.ToLower(e.Name), "Code" + strings.ReplaceAll(e.Name, "_", ""),
		} {
			if got, ok := LookupCode(s); !ok || got != e {
				t.Errorf("LookupCode(%q) = %+v, %v", s, got, ok)
			}
		}
	}
	for _, s := range []string{"", "MRDN-", "code", "999", "65536", "-1", "+104", "1e2", "CHECKSUMS", "MRDN-MRDN-104"} {
		if got, ok := LookupCode(s); ok || got != (CodeInfo{}) {
			t.Errorf("LookupCode(%q) = %+v", s, got)
		}
	}
}

func TestCodesIsACopy(t *testing.T) {
	Codes()[0].Name = "changed"
	if CodeOK.String() != "OK" {
		t.Fatal("a caller can change the table")
	}
}

func TestCodeErr(t *testing.T) {
	if err := CodeOK.Err(); err != nil {
		t.Errorf("OK is the error %v", err)
	}
	if err := CodeFull.Err(); !errors.Is(err, CodeFull) || errors.Is(err, CodeAbsent) {
		t.Errorf("FULL is %v", err)
	}
}

func TestCodeOf(t *testing.T) {
	wrapped := fmt.Errorf("peer a: %w", fmt.Errorf("item 3: %w", &ChecksumError{}))
	for _, c := range []struct {
		err  error
		want Code
	}{
		{nil, CodeOK},
		{CodeBusy, CodeBusy},
		{Code(999), 999},
		{wrapped, CodeChecksum},
		{errors.Join(io.ErrClosedPipe, CodeLaneLost), CodeLaneLost},
		{&EnvelopeError{&MagicError{}}, CodeEnvelope},
		{fmt.Errorf("pull: %w", context.DeadlineExceeded), CodeDeadline},
		{os.ErrDeadlineExceeded, CodeDeadline},
		{fmt.Errorf("pull: %w", context.Canceled), CodeCancelled},
		{fmt.Errorf("%w after %w", CodeNoProgress, context.DeadlineExceeded), CodeNoProgress},
		{io.ErrUnexpectedEOF, CodeInternal},
		{CodeOK, CodeInternal}, // an error is never a success
		{fmt.Errorf("odd: %w", CodeOK), CodeInternal},
	} {
		if got := CodeOf(c.err); got != c.want {
			t.Errorf("CodeOf(%v) = %v, want %v", c.err, got, c.want)
		}
	}
}
