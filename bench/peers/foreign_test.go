package peers

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"

	"meridian/internal/realpart"
	"meridian/internal/testbed"
	"meridian/wire"
)

// Mooncake's own benchmark as target, and our initiator.
func TestTransferEngineBenchAsTargetIsMeasured(t *testing.T) {
	cmd := realpart.TransferBench(t, "--mode=target", "--buffer_size=8388608", "--block_size=65536", "--batch_size=16", "--threads=2")
	log, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	// The handshake's port is told before memory is registered, which the last line is behind.
	var name, all string
	lines := bufio.NewScanner(log)
	for lines.Scan() {
		all += lines.Text() + "\n"
		if m := regexp.MustCompile(`handshake, listening on (\S+)`).FindStringSubmatch(lines.Text()); m != nil {
			name = m[1]
		}
		if strings.Contains(lines.Text(), "DRAM is used") {
			break
		}
	}
	if name == "" {
		t.Fatal("it has not told its name:", all)
	}
	go func() { _, _ = io.Copy(io.Discard, log) }()
	opt := Options{Quick: true, Sizes: []uint64{16 << 10, 1 << 20}, Ops: []Op{Read, Write}, Self: []string{"x"}}
	var rep SegmentReport
	testbed.Until(t, "its memory is registered", func() bool {
		rep, err = MeasureSegment(t.Context(), opt, Segment{name, NoServer})
		return !errors.Is(err, errNoMemory)
	})
	if err != nil || len(rep.Cells) != 8 {
		t.Fatal(rep, err)
	}
	for _, c := range rep.Cells {
		r := c.Results[0]
		if tooLong := c.Size == 1<<20; tooLong != strings.Contains(r.Error, "the first buffer has 8388608 bytes") || !tooLong && r.Rate <= 0 {
			t.Errorf("%v: %+v", c.Cell, r)
		}
	}
	_, rows := rep.Rows()
	if text := fmt.Sprint(rows, rep.Note()); !strings.Contains(text, "not measured: the first") || !strings.Contains(text, name) {
		t.Error(text)
	}
}

func TestASegmentThatIsNotThereIsSaid(t *testing.T) {
	_, err := MeasureSegment(t.Context(), Options{Quick: true, Self: []string{"x"}}, Segment{"127.0.0.1:1", NoServer})
	if !errors.Is(err, wire.CodeUnreachable) {
		t.Error(err)
	}
	_, err = MeasureSegment(t.Context(), Options{Quick: true, Self: []string{"x"}}, Segment{"a", "redis://x"})
	if !errors.Is(err, wire.CodeUnsupported) {
		t.Error(err)
	}
}
