package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"meridian/agent/adminpb"
	"meridian/agent/client"
	"meridian/agent/config"
	"meridian/internal/safefile"
	"meridian/wire"
)

func newFabricObjectCmd(a *app) *cobra.Command {
	return group(a, "object", "Objects of other clients in the store of a fabric", "  mrdn fabric object get attic KEY", newFabricObjectGetCmd(a))
}

func newFabricObjectGetCmd(a *app) *cobra.Command {
	var out string
	c := &cobra.Command{
		Use:   "get FABRIC KEY",
		Short: "Read an object that another client has put",
		Long: `Reads an object that another client has put into the store of a fabric, and
writes its bytes to --out or to standard output. KEY is the whole key, as the
client gave it. The table of the fabric must have raw = true. The object is
opaque: it is no block, and nothing proves its bytes unless its client left a
CRC-64. Standard error says so. The exit code is 5, and nothing is written, when
the CRC-64 does not fit. Keys below the prefix of the fabric are refused: there
are blocks.`,
		Example:     "  mrdn fabric object get attic page/7 --out page.bin\n  mrdn fabric object get attic page/7 | sha256sum",
		Args:        exactly("FABRIC", "KEY"),
		Annotations: map[string]string{accessKey: readOnly},
	}
	c.Flags().StringVar(&out, "out", "", "file to write to (default: standard output)")
	c.RunE = a.command(func(ctx context.Context, args []string) (result, error) {
		return a.withAdmin(ctx, func(adm *client.Admin) (result, error) {
			r, b, err := readObject(ctx, adm, args[0], args[1])
			if err != nil {
				return nil, err
			}
			if out == "" {
				return objectBody{r, b}, nil
			}
			if err := safefile.Write(out, b, 0o600); err != nil {
				return nil, failed("", "%w", err)
			}
			r.File = out
			return r, nil
		})
	})
	return c
}

// readObject takes no more bytes than the daemon said first, and no fewer.
func readObject(ctx context.Context, adm *client.Admin, fabric, key string) (objectResult, []byte, error) {
	var none objectResult
	stream, err := adm.ReadObject(ctx, &adminpb.ReadObjectRequest{Fabric: fabric, Key: key})
	if err != nil {
		return none, nil, err
	}
	head, err := stream.Recv()
	if err != nil {
		return none, nil, objectFailure(err)
	}
	size := head.GetSize()
	if size > maxBlockBytes {
		return none, nil, failed("", "the daemon says that the object has %d bytes; mrdn takes %s at most", size, config.FormatBytes(maxBlockBytes))
	}
	b := make([]byte, 0, size)
	for {
		part, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return none, nil, objectFailure(err)
		}
		if b = append(b, part.GetData()...); uint64(len(b)) > size {
			break
		}
	}
	if uint64(len(b)) != size {
		return none, nil, failed("", "the daemon said %d bytes and sent %d", size, len(b))
	}
	return objectResult{Fabric: fabric, Key: key, Length: size, Verification: verificationName(head.GetVerification())}, b, nil
}

// objectFailure replaces the hint of ABSENT, which speaks to an engine.
func objectFailure(err error) error {
	f := asCommandFailure(err)
	if f.code == wire.CodeAbsent && f.hint == absentFix {
		f.hint = "KEY is the whole key, as the other client gave it"
	}
	return f
}

var absentFix = func() string { i, _ := wire.LookupCode(wire.CodeAbsent.String()); return i.Fix }()

func verificationName(v adminpb.Verification) string {
	if v == adminpb.Verification_VERIFICATION_CRC64 {
		return "crc64"
	}
	return "unverified"
}

type objectResult struct {
	Fabric       string `json:"fabric"`
	Key          string `json:"key"`
	Length       uint64 `json:"length"`
	Verification string `json:"verification"`
	File         string `json:"file,omitempty"`
}

func (r objectResult) grid(bool) grid {
	return grid{rows: [][]string{{"fabric", r.Fabric}, {"key", r.Key}, {"length", number(r.Length)}, {"verification", r.Verification}, {"file", r.File}}}
}

func (r objectResult) remark() string {
	return fmt.Sprintf("%d bytes, %s: opaque, not a block", r.Length, r.Verification)
}

// objectBody is an object to standard output: raw, or base64 inside JSON.
type objectBody struct {
	objectResult
	Body []byte `json:"body"`
}

func (r objectBody) bytes() []byte { return r.Body }
