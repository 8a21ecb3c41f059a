package segment

import (
	"bytes"
	"encoding/json"
)

// The fields in the order in which Mooncake writes them: by name.
type (
	outDescriptor struct {
		Buffers    []outBuffer `json:"buffers"`
		Name       string      `json:"name"`
		Protocol   any         `json:"protocol"`
		RDMAServer string      `json:"rdma_server_name"`
		DataHost   string      `json:"tcp_data_host"`
		DataPort   uint16      `json:"tcp_data_port"`
		Proto      int         `json:"tcp_proto_version"`
		Timestamp  string      `json:"timestamp"`
	}
	outBuffer struct {
		Addr     uint64 `json:"addr"`
		Length   uint64 `json:"length"`
		Name     string `json:"name"`
		Protocol string `json:"protocol,omitempty"` // where the segment has several
	}
)

// Append writes d as Mooncake does: compact, names sorted, with a newline. One
// protocol is a string, several are an array.
func (d *Descriptor) Append(b []byte) []byte {
	out := outDescriptor{
		Buffers: make([]outBuffer, len(d.Buffers)), Name: d.Name, Protocol: d.Protocols,
		DataHost: d.DataHost, DataPort: d.DataPort, Proto: d.Proto, Timestamp: d.Timestamp,
	}
	each := TCP
	if len(d.Protocols) == 1 {
		out.Protocol, each = d.Protocols[0], ""
	}
	for i, buf := range d.Buffers {
		out.Buffers[i] = outBuffer{buf.Addr, buf.Len, buf.Name, each}
	}
	buf := bytes.NewBuffer(b)
	e := json.NewEncoder(buf)
	e.SetEscapeHTML(false)
	_ = e.Encode(out) // strings and numbers: cannot fail
	return buf.Bytes()
}
