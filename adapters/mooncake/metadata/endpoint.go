package metadata

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"strconv"
	"strings"

	"meridian/internal/stranger"
	"meridian/wire"
)

// Endpoint is where a node answers handshakes, and whose entry it is: the value of
// an rpc_meta key.
type Endpoint struct {
	Host string // a name or an address, an IPv6 one without brackets
	Port uint16

	// Epoch grows with each start of an owner that numbers them. An older one never
	// replaces a newer one. 0: the owner does not say, as stock engines do.
	Epoch uint64
}

// maxHost bounds a host: that of a DNS name.
const maxHost = 253

// Addr is the address to connect to.
func (e Endpoint) Addr() string { return net.JoinHostPort(e.Host, strconv.Itoa(int(e.Port))) }

// At says whether both are the same address.
func (e Endpoint) At(other Endpoint) bool { return e.Host == other.Host && e.Port == other.Port }

type wireEndpoint struct {
	Host  string `json:"ip_or_host_name"`
	Epoch uint64 `json:"meridian_epoch,omitempty"`
	Port  uint16 `json:"rpc_port"`
}

// Append writes the value as engines do: compact, names sorted.
func (e Endpoint) Append(b []byte) []byte {
	buf := bytes.NewBuffer(b)
	enc := json.NewEncoder(buf)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(wireEndpoint{Host: e.Host, Epoch: e.Epoch, Port: e.Port}) // strings and numbers: cannot fail
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n"))
}

// ParseEndpoint reads the value of an rpc_meta key. Numbers are never floating point.
func ParseEndpoint(b []byte) (Endpoint, error) {
	var in struct {
		Host  *string          `json:"ip_or_host_name"`
		Port  *json.RawMessage `json:"rpc_port"` // raw, since a json.Number takes "12" in quotes too
		Epoch *json.RawMessage `json:"meridian_epoch"`
	}
	if len(b) > MaxBytes {
		return Endpoint{}, &ValueError{What: "rpc_meta", Have: fmt.Sprintf("%d bytes", len(b)), Want: "1 MiB at most"}
	}
	if err := json.Unmarshal(b, &in); err != nil {
		return Endpoint{}, &ValueError{What: "rpc_meta", Have: stranger.Quote(string(b)), Want: "a JSON object with ip_or_host_name and rpc_port"}
	}
	var e Endpoint
	if in.Host == nil || *in.Host == "" || len(*in.Host) > maxHost || strings.ContainsFunc(*in.Host, badInHost) {
		return Endpoint{}, &ValueError{What: "rpc_meta: ip_or_host_name", Have: show(in.Host), Want: "a host name or an address without brackets"}
	}
	e.Host = *in.Host
	port, err := number(in.Port, 16)
	if err != nil || port == 0 {
		return Endpoint{}, &ValueError{What: "rpc_meta: rpc_port", Have: show(in.Port), Want: "a number from 1 to 65535"}
	}
	e.Port = uint16(port)
	if in.Epoch != nil {
		if e.Epoch, err = number(in.Epoch, 64); err != nil {
			return Endpoint{}, &ValueError{What: "rpc_meta: meridian_epoch", Have: show(in.Epoch), Want: "a number below 2^64"}
		}
	}
	return e, nil
}

func badInHost(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune(`[]/\"'`, r) }

func number(n *json.RawMessage, bits int) (uint64, error) {
	if n == nil {
		return 0, strconv.ErrSyntax
	}
	return strconv.ParseUint(string(*n), 10, bits)
}

// show is a field as it was read, or "missing".
func show[T ~string | ~[]byte](v *T) string {
	if v == nil {
		return "missing"
	}
	return stranger.Quote(string(*v))
}

// ValueError is a value that cannot be used. It matches CodeInvalid.
type ValueError struct{ What, Have, Want string }

func (e *ValueError) Error() string { return fmt.Sprintf("%s is %s, want %s", e.What, e.Have, e.Want) }

// Unwrap returns CodeInvalid.
func (e *ValueError) Unwrap() error { return wire.CodeInvalid }
