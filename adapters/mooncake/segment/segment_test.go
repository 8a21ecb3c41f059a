package segment

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"meridian/wire"
)

// What an engine of the released wheel 0.3.13.post1 sends.
const golden = `{"buffers":[{"addr":139838580846592,"length":1048576,"name":"127.0.0.1:15641"}],"name":"127.0.0.1:15641","protocol":"tcp","rdma_server_name":"","tcp_data_host":"127.0.0.1","tcp_data_port":15285,"tcp_proto_version":2,"timestamp":"2026-11-28 17:24:04.704302"}` + "\n"

func TestADescriptorOfTheWheelIsReadAndWrittenAsItCame(t *testing.T) {
	d, err := Parse([]byte(golden))
	if err != nil {
		t.Fatal(err)
	}
	want := Descriptor{
		Name: "127.0.0.1:15641", Protocols: []string{"tcp"}, DataHost: "127.0.0.1", DataPort: 15285, Proto: 2,
		Timestamp: "2026-11-28 17:24:04.704302", Buffers: []Buffer{{"127.0.0.1:15641", 139838580846592, 1048576}},
	}
	if !reflect.DeepEqual(d, want) {
		t.Errorf("got %+v", d)
	}
	if got := string(d.Append([]byte("x"))); got != "x"+golden {
		t.Errorf("wrote %s", got)
	}
}

// with replaces one field of a descriptor, or takes it out.
func with(field, value string) string {
	fields := map[string]string{
		"name": `"a:1"`, "protocol": `"tcp"`, "tcp_data_host": `"h"`, "tcp_data_port": "15001", "tcp_proto_version": "2",
		"timestamp": `"now"`, "buffers": `[{"name":"b","addr":4096,"length":8192}]`,
	}
	fields[field] = value
	var list []string
	for k, v := range fields {
		if v != "" {
			list = append(list, fmt.Sprintf("%q:%s", k, v))
		}
	}
	return "{" + strings.Join(list, ",") + "}"
}

// Each of these was accepted by the released wheel.
func TestWhatMooncakeAcceptsIsAccepted(t *testing.T) {
	buffer := []Buffer{{"b", 4096, 8192}}
	for name, c := range map[string]struct {
		text string
		want func(d *Descriptor)
	}{
		"all fields":               {with("", "0"), func(*Descriptor) {}},
		"no name":                  {with("name", ""), func(d *Descriptor) { d.Name = "" }},
		"a null name":              {with("name", "null"), func(d *Descriptor) { d.Name = "" }},
		"no version":               {with("tcp_proto_version", ""), func(d *Descriptor) { d.Proto = 1 }},
		"version 0":                {with("tcp_proto_version", "0"), func(d *Descriptor) { d.Proto = 1 }},
		"a negative version":       {with("tcp_proto_version", "-1"), func(d *Descriptor) { d.Proto = 1 }},
		"a later version":          {with("tcp_proto_version", "3"), func(d *Descriptor) { d.Proto = 3 }},
		"a whole number as float":  {with("tcp_proto_version", "2.0"), func(*Descriptor) {}},
		"no timestamp":             {with("timestamp", ""), func(d *Descriptor) { d.Timestamp = "" }},
		"no buffers":               {with("buffers", ""), func(d *Descriptor) { d.Buffers = nil }},
		"buffers null":             {with("buffers", "null"), func(d *Descriptor) { d.Buffers = nil }},
		"empty buffers":            {with("buffers", "[]"), func(d *Descriptor) { d.Buffers = []Buffer{} }},
		"no data host":             {with("tcp_data_host", ""), func(d *Descriptor) { d.DataHost = "" }},
		"other keys":               {with("x", `{"a":[1,{}]}`), func(*Descriptor) {}},
		"a key in capitals":        {with("TCP_DATA_PORT", "1"), func(*Descriptor) {}},
		"a port as float":          {with("tcp_data_port", "15001.0"), func(*Descriptor) {}},
		"an address with exponent": {with("buffers", `[{"name":"b","addr":4.096e3,"length":8192}]`), func(*Descriptor) {}},
		"an address above 2^63":    {with("buffers", `[{"name":"b","addr":18446744073709547520,"length":4096}]`), func(d *Descriptor) { d.Buffers = []Buffer{{"b", 1<<64 - 4096, 4096}} }},
		"no port":                  {with("tcp_data_port", ""), func(d *Descriptor) { d.DataPort = 0 }},
	} {
		want := Descriptor{Name: "a:1", Protocols: []string{"tcp"}, DataHost: "h", DataPort: 15001, Proto: 2, Timestamp: "now", Buffers: buffer}
		c.want(&want)
		if got, err := Parse([]byte(c.text)); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// A float cannot tell these two apart.
func TestNumbersAbove2To53StayAsTheyAre(t *testing.T) {
	for _, n := range []uint64{1<<53 + 1, 1<<63 + 1, 1<<64 - 1} {
		d, err := Parse(fmt.Appendf(nil, `{"protocol":"tcp","buffers":[{"name":"b","addr":%d,"length":1}]}`, n))
		if err != nil || d.Buffers[0].Addr != n || !strings.Contains(string(d.Append(nil)), fmt.Sprint(n)) {
			t.Errorf("%d: %+v, %v", n, d, err)
		}
	}
}

func TestAWrongFieldIsNamedWithItsValue(t *testing.T) {
	buffers := func(text string) string { return with("buffers", text) }
	for text, want := range map[string]string{
		with("name", "5"):                                                "name is 5, want a string",
		with("protocol", ""):                                             "protocol is absent",
		with("protocol", "null"):                                         "protocol is absent",
		with("protocol", "7"):                                            "protocol is 7",
		with("protocol", "[]"):                                           "protocol is []",
		with("protocol", `["tcp",1]`):                                    `protocol is ["tcp",1]`,
		with("tcp_data_host", "{}"):                                      "tcp_data_host is {}",
		with("tcp_data_port", `"15001"`):                                 `tcp_data_port is "15001", want a port`,
		with("tcp_data_port", "65536"):                                   "tcp_data_port is 65536",
		with("tcp_data_port", "-1"):                                      "tcp_data_port is -1",
		with("tcp_data_port", "1.5"):                                     "tcp_data_port is 1.5",
		with("tcp_proto_version", `"2"`):                                 `tcp_proto_version is "2", want a whole number`,
		with("tcp_proto_version", "1e10"):                                "tcp_proto_version is 1e10",
		with("tcp_proto_version", "true"):                                "tcp_proto_version is true",
		with("timestamp", "5"):                                           "timestamp is 5",
		buffers("5"):                                                     "buffers is 5, want an array",
		buffers("{}"):                                                    "buffers is {}",
		buffers("[5]"):                                                   "buffers[0] is 5, want an object",
		buffers("[null]"):                                                "buffers[0] is null",
		buffers(`[{"addr":1,"length":1}]`):                               "buffers[0].name is absent",
		buffers(`[{"name":"","addr":1}]`):                                `buffers[0].name is "", want`,
		buffers(`[{"name":"b","length":1}]`):                             "buffers[0].addr is absent",
		buffers(`[{"name":"b","addr":0,"length":1}]`):                    "buffers[0].addr is 0",
		buffers(`[{"name":"b","addr":-1,"length":1}]`):                   "buffers[0].addr is -1",
		buffers(`[{"name":"b","addr":"4096","length":1}]`):               `buffers[0].addr is "4096"`,
		buffers(`[{"name":"b","addr":18446744073709551616,"length":1}]`): "buffers[0].addr is 18446744073709551616",
		buffers(`[{"name":"b","addr":1e300,"length":1}]`):                "buffers[0].addr is 1e300",
		buffers(`[{"name":"b","addr":1.8e19,"length":1}]`):               "buffers[0].addr is 1.8e19",
		buffers(`[{"name":"b","addr":1,"length":0}]`):                    "buffers[0].length is 0",
		buffers(`[{"name":"b","addr":1,"length":1},{"name":"b","addr":9,"length":0}]`): "buffers[1].length is 0",
		buffers(`[{"name":"b","addr":18446744073709551615,"length":2}]`):               "buffers[0].length is 2, want at most 1",
		with("name", `"`+strings.Repeat("x", 500)+`"`) + "}":                           "no JSON object",
		"": "no JSON object", "[]": "no JSON object", "nonsense": "no JSON object", "{}": "protocol is absent", "null": "protocol is absent",
	} {
		_, err := Parse([]byte(text))
		if !errors.Is(err, wire.CodeInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

func TestAnErrorNeverCarriesALongTextOfThePeer(t *testing.T) {
	long := strings.Repeat("x", MaxBytes/2)
	for _, text := range []string{
		with("tcp_data_port", `"`+long+`"`), with("protocol", "5"+strings.Repeat("0", MaxBytes/2)),
		with("buffers", `["`+long+`"]`), long, with("protocol", `["tcp","`+long+`",5]`),
	} {
		if _, err := Parse([]byte(text)); err == nil || len(err.Error()) > 300 {
			t.Errorf("%d bytes: %.400v", len(text), err)
		}
	}
	d, err := Parse([]byte(with("protocol", `"`+long+`"`)))
	if _, err2 := d.DataAddr("h"); err != nil || err2 == nil || len(err2.Error()) > 300 {
		t.Errorf("%v, %.400v", err, err2)
	}
}

func TestADescriptorAboveTheLimitIsRefused(t *testing.T) {
	_, err := Parse(make([]byte, MaxBytes+1))
	if !errors.Is(err, wire.CodeTooLarge) || !strings.Contains(err.Error(), "1048577 bytes, limit 1048576") {
		t.Error(err)
	}
	d := Descriptor{Protocols: []string{TCP}, Proto: 2}
	for i := range 12_000 { // as many as the released wheel was seen to take
		d.Buffers = append(d.Buffers, Buffer{"127.0.0.1:15641", 1<<47 + uint64(i)<<20, 1 << 20})
	}
	if got, err := Parse(d.Append(nil)); err != nil || !reflect.DeepEqual(got, d) {
		t.Errorf("%d buffers: %v", len(got.Buffers), err)
	}
}

func TestOfSeveralProtocolsTheTCPBuffersAreTaken(t *testing.T) {
	d, err := Parse([]byte(`{"protocol":["rdma","tcp"],"tcp_data_port":9,"buffers":[{"protocol":"rdma","name":""},{"protocol":"tcp","name":"b","addr":1,"length":2}]}`))
	if err != nil || !reflect.DeepEqual(d.Buffers, []Buffer{{"b", 1, 2}}) {
		t.Fatalf("%+v, %v", d, err)
	}
	again, err := Parse(d.Append(nil))
	if err != nil || !reflect.DeepEqual(again, d) {
		t.Errorf("%+v, %v", again, err)
	}
	if _, err := Parse([]byte(`{"protocol":["rdma","tcp"],"buffers":[{"protocol":5}]}`)); err == nil || !strings.Contains(err.Error(), "buffers[0].protocol is 5") {
		t.Error(err)
	}
}

// The buffers of another protocol may have no address at all.
func TestASegmentOfAnotherProtocolIsReadAndRefusedByName(t *testing.T) {
	d, err := Parse([]byte(`{"name":"n","protocol":"rdma","buffers":[{"file_path":"/x"}]}`))
	if err != nil || len(d.Buffers) != 0 {
		t.Fatalf("%+v, %v", d, err)
	}
	if _, err := d.DataAddr("h"); !errors.Is(err, wire.CodeUnsupported) || !strings.Contains(err.Error(), `["rdma"]`) {
		t.Error(err)
	}
}

func TestDataConnectionsGoToTheDataHostElseToTheOther(t *testing.T) {
	for _, c := range []struct{ data, other, want string }{
		{"h", "o", "h:9"}, {"", "o", "o:9"}, {"::1", "o", "[::1]:9"}, {"", "fe80::1", "[fe80::1]:9"},
	} {
		d := Descriptor{Protocols: []string{TCP}, DataHost: c.data, DataPort: 9}
		if got, err := d.DataAddr(c.other); err != nil || got != c.want {
			t.Errorf("%+v: %s, %v", c, got, err)
		}
	}
	for _, d := range []Descriptor{{Protocols: []string{TCP}, DataHost: "h"}, {Protocols: []string{TCP}, DataPort: 9}} {
		if _, err := d.DataAddr(""); !errors.Is(err, wire.CodeInvalid) {
			t.Errorf("%+v: %v", d, err)
		}
	}
}

func TestCoversIsWithinOneBuffer(t *testing.T) {
	d := Descriptor{Buffers: []Buffer{{"b", 100, 10}, {"b", 110, 10}, {"b", 1<<64 - 4, 4}}}
	for _, c := range []struct {
		addr, n uint64
		want    bool
	}{
		{100, 10, true}, {109, 1, true}, {105, 6, false}, {99, 1, false}, {100, 11, false}, {110, 10, true}, {120, 1, false},
		{1<<64 - 4, 4, true}, {1<<64 - 1, 1, true}, {1<<64 - 1, 2, false}, {100, 1<<64 - 1, false}, {120, 0, false}, {110, 0, false},
	} {
		if got := d.Covers(c.addr, c.n); got != c.want {
			t.Errorf("%d bytes at %d: %v", c.n, c.addr, got)
		}
	}
}

func TestNamesAreTakenApart(t *testing.T) {
	for name, want := range map[string]struct {
		host string
		port uint16
	}{
		"127.0.0.1:15641": {"127.0.0.1", 15641}, "node-a:1": {"node-a", 1}, "[::1]:9": {"::1", 9}, "node-a": {"node-a", DefaultPort},
		"::1": {"::1", DefaultPort}, "[fe80::1%eth0]": {"fe80::1%eth0", DefaultPort}, "a:65535": {"a", 65535},
	} {
		host, port, err := SplitName(name)
		if err != nil || host != want.host || port != want.port {
			t.Errorf("%s: %s, %d, %v", name, host, port, err)
		}
		if again, p, err := SplitName(Name(host, port)); err != nil || again != host || p != port {
			t.Errorf("%s as %s: %s, %d, %v", name, Name(host, port), again, p, err)
		}
	}
	for _, name := range []string{
		"", ":1", "a:", "a:0", "a:65536", "a:x", "a:-1", "[::1", "[::1]9", "[::1]:", "[]:1", "a b:1", "a/b", "a:1x", "a:b:1", "[a:b]:1", strings.Repeat("a:", 200),
	} {
		if host, port, err := SplitName(name); !errors.Is(err, wire.CodeInvalid) || len(err.Error()) > 300 {
			t.Errorf("%q: %q, %d, %v", name, host, port, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{golden, with("", "0"), with("protocol", `["tcp","rdma"]`), with("tcp_data_port", "1e3"), "{}", "null"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		d, err := Parse(b)
		if err != nil {
			if wire.CodeOf(err) == wire.CodeInternal || len(err.Error()) > 400 {
				t.Fatalf("%.500v", err)
			}
			return
		}
		for _, buf := range d.Buffers {
			if buf.Name == "" || !d.Covers(buf.Addr, buf.Len) {
				t.Fatalf("%+v", buf)
			}
		}
		again, err := Parse(d.Append(nil))
		if err != nil && len(d.Append(nil)) <= MaxBytes || err == nil && len(again.Buffers) != len(d.Buffers) {
			t.Fatalf("%+v, then %+v, %v", d, again, err)
		}
	})
}

func FuzzSplitName(f *testing.F) {
	for _, s := range []string{"127.0.0.1:1", "[::1]:2", "::1", "a", "[a", "a:"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		host, port, err := SplitName(name)
		if err != nil {
			return
		}
		if h, p, err := SplitName(Name(host, port)); err != nil || h != host || p != port {
			t.Fatalf("%q: %q %d, then %q %d %v", name, host, port, h, p, err)
		}
	})
}
