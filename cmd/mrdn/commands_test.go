package main

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"meridian/agent/adminpb"
	"meridian/wire"
)

func expect(t *testing.T, got outcome, exit int, out, err string) {
	t.Helper()
	if got.exit != exit || !strings.Contains(got.out, out) || !strings.Contains(got.err, err) {
		t.Errorf("exit %d, want %d; out should have %q, err %q\nout: %s\nerr: %s", got.exit, exit, out, err, got.out, got.err)
	}
	if exit != exitOK {
		lines := strings.Split(strings.TrimSuffix(got.err, "\n"), "\n")
		if !strings.HasPrefix(lines[0], "error: ") || len(lines) > 2 || (len(lines) == 2 && !strings.HasPrefix(lines[1], "hint: ")) {
			t.Errorf("not one line and a hint: %q", got.err)
		}
	}
}

func TestUsageErrorsExit2(t *testing.T) {
	s := newShell(t, newDaemon())
	for _, args := range [][]string{
		{"nothing"}, {"peer", "nothing"}, {"status", "extra"}, {"--nope"}, {"status", "-o", "xml"}, {"status", "--timeout", "0s"},
		{"status", "--timeout", "soon"}, {"block", "stat"}, {"block", "stat", "xyz"}, {"block", "stat", goodKey, "more"},
		{"block", "ls", "--tier", "cold"}, {"block", "ls", "--limit", "0"}, {"transfer", "list", "--limit", "0"}, {"errors", "lookup"}, {"completion", "tcsh"},
		{"cert", "issue"}, {"cert", "issue", "--name", "a/b"}, {"cert", "ca", "--days", "0"}, {"status", "--wait", "--wait-duration", "-1s"},
		{"block", "put", "-", "--block-bytes", "64M"}, {"block", "put", "-", "--tenant", "a\nb"}, {"peer", "list", "a", "b"},
	} {
		got := s.run(t, args...)
		if got.exit != exitUsage {
			t.Errorf("%q: exit %d, %s", args, got.exit, got.err)
			continue
		}
		expect(t, got, exitUsage, "", "error: ")
	}
}

func TestAnAbsentDaemonExits3(t *testing.T) {
	s := newShell(t, nil)
	for _, args := range [][]string{{"status"}, {"peer", "list"}, {"block", "ls"}, {"block", "stat", goodKey}, {"transfer", "list"}, {"fabric", "list"}, {"fabric", "probe"}} {
		expect(t, s.run(t, args...), exitUnreachable, "", "MERIDIAN_ADMIN_SOCKET")
	}
}

// A report without a measurement would hide the error behind it.
func TestABenchOfATargetThatIsNotThereReportsNothing(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := l.Addr().String()
	_ = l.Close()
	got := newShell(t, nil).run(t, "bench", "mooncake", "--target", at, "--quick")
	expect(t, got, exitUnreachable, "", "refused")
	if got.out != "" {
		t.Errorf("on stdout: %q", got.out)
	}
}

func TestADaemonThatHangsExits3(t *testing.T) {
	d := newDaemon()
	d.hang = true
	expect(t, newShell(t, d).run(t, "status", "--timeout", "20ms"), exitUnreachable, "", "error: ")
}

func TestASocketOfAnotherUserExits4(t *testing.T) {
	f := asFailure(adminSocket.unreachable("x", &os.PathError{Op: "dial", Path: "x", Err: os.ErrPermission}))
	if f.exit != exitRefused || !strings.Contains(f.hint, "own user") {
		t.Errorf("%+v", f)
	}
}

func TestCodesOfTheDaemonDecideTheExit(t *testing.T) {
	d := newDaemon()
	s := newShell(t, d)
	for code, exit := range map[wire.Code]int{
		wire.CodeAbsent: exitFailed, wire.CodeStale: exitFailed, wire.CodeDenied: exitRefused, wire.CodeBusy: exitRefused,
		wire.CodeDraining: exitRefused, wire.CodeUnreachable: exitUnreachable, wire.CodeDeadline: exitUnreachable,
		wire.CodeChecksum: exitIntegrity, wire.CodeInvalid: exitUsage, wire.CodeInternal: exitFailed, wire.CodeUnsupported: exitRefused,
	} {
		d.err = adminpb.Error(&adminpb.ErrorDetail{Code: uint32(code), Name: code.String(), Fix: "do this"}, "it was "+code.String())
		expect(t, s.run(t, "fabric", "list"), exit, "", "error: it was "+code.String()+"\nhint: do this\n")
	}
	d.err = errors.New("plain")
	expect(t, s.run(t, "fabric", "list"), exitFailed, "", "plain")
}

func TestStatus(t *testing.T) {
	d := newDaemon()
	s := newShell(t, d)
	expect(t, s.run(t, "status"), exitOK, "3 MiB of 1 GiB in 12 blocks", "")
	expect(t, s.run(t, "status", "--brief"), exitOK, "decode-1  ready  serving\n", "")
	d.notReady.Store(1)
	expect(t, s.run(t, "status", "--brief"), exitFailed, "peers.too_few (0 of 1)", "decode-1 is not ready: peers.too_few (0 of 1)")
	d.notReady.Store(1)
	if got := s.run(t, "status", "-o", "json"); got.exit != exitFailed || !strings.Contains(got.out, `"ready": false`) {
		t.Errorf("exit %d, %s", got.exit, got.out)
	}
}

func TestStatusWaitsUntilReady(t *testing.T) {
	d := newDaemon()
	s := newShell(t, d)
	d.notReady.Store(3)
	expect(t, s.run(t, "status", "--wait", "--wait-duration", "1m"), exitOK, "ready", "")
	if n := d.notReady.Load(); n >= 0 {
		t.Errorf("it stopped asking %d times early", n+1)
	}
	d.notReady.Store(1 << 30)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	d.asked = func(left int32) {
		if left == 1<<30-5 {
			cancel() // the user presses ^C at the fifth question
		}
	}
	expect(t, s.runIn(ctx, "status", "--wait", "--brief"), exitFailed, "not ready", "stopped waiting: decode-1 is not ready")
}

func TestStatusWaitEndsWithAnAbsentDaemonToo(t *testing.T) {
	expect(t, newShell(t, nil).run(t, "status", "--wait", "--wait-duration", "20ms"), exitUnreachable, "", "waited 20ms: ")
}

func TestPeerList(t *testing.T) {
	s := newShell(t, newDaemon())
	expect(t, s.run(t, "namespace", "list"), exitOK, "configuration, engines: 2, peers: b c", "")
	expect(t, s.run(t, "namespace", "list"), exitOK, "nobody; blocks are stored", "")
	expect(t, s.run(t, "namespace", "list", "-o", "json"), exitOK, `"manifest": "block_bytes=1048576\n"`, "")
	got := s.run(t, "peer", "list")
	expect(t, got, exitOK, "GEOMETRY: dtype: ours f16, theirs bf16", "")
	if strings.Contains(got.out, "\x1b") {
		t.Errorf("what a peer said reaches the terminal as it is: %q", got.out)
	}
	expect(t, s.run(t, "peer", "list", "prefill-1"), exitOK, "16.54µs", "")
	expect(t, s.run(t, "peer", "list", "prefill-9"), exitFailed, "", `no peer is named "prefill-9"`)
	expect(t, s.run(t, "peer", "list", "-o", "wide"), exitOK, "acme", "")
}

func TestBlockQueries(t *testing.T) {
	s := newShell(t, newDaemon())
	expect(t, s.run(t, "block", "ls", "--limit", "2", "--tier", "output_critical"), exitOK, "OutputCritical", "")
	if got := s.run(t, "block", "ls", "--limit", "2"); strings.Count(got.out, goodKey) != 2 {
		t.Errorf("limit 2:\n%s", got.out)
	}
	expect(t, s.run(t, "block", "stat", goodKey), exitOK, "ingest", "")
	expect(t, s.run(t, "block", "stat", absentKey), exitFailed, "", "hint: mrdn block ls lists the keys that are here")
	expect(t, s.run(t, "block", "verify", goodKey), exitOK, "ok", "")
	expect(t, s.run(t, "block", "verify", badKey), exitIntegrity, "failed", "does not match its checksum")
}

func TestTransferList(t *testing.T) {
	s := newShell(t, newDaemon())
	expect(t, s.run(t, "transfer", "list", "-o", "wide"), exitOK, "1.00 GB/s", "")
	expect(t, s.run(t, "transfer", "list"), exitOK, "DEADLINE", "")
	if got := s.run(t, "transfer", "list", "--running"); strings.Contains(got.out, "push") {
		t.Errorf("a finished transfer is among the running:\n%s", got.out)
	}
}

func TestFabricProbe(t *testing.T) {
	d := newDaemon()
	s := newShell(t, d)
	expect(t, s.run(t, "fabric", "probe"), exitOK, "3.25 GB/s", "")
	d.probes = append(d.probes, &adminpb.Probe{Fabric: "link", Peer: "prefill-2", Code: 207, Text: "no lane"})
	expect(t, s.run(t, "fabric", "probe"), exitFailed, "UNREACHABLE no lane", "1 of 2 paths failed")
	d.probes[1].Code = 104
	expect(t, s.run(t, "fabric", "probe"), exitIntegrity, "failed", "CHECKSUM")
	d.probes = nil
	expect(t, s.run(t, "fabric", "probe"), exitFailed, "", "no path to probe")
}

// Objects of other clients are told as what they are, and one that is not as long as the
// daemon said reaches nobody.
func TestFabricObjectGet(t *testing.T) {
	s := newShell(t, newDaemon())
	get := func(args ...string) outcome {
		return s.run(t, append([]string{"fabric", "object", "get", "attic"}, args...)...)
	}
	if got := get("page"); got.exit != exitOK || got.out != "opaque" || got.err != "6 bytes, unverified: opaque, not a block\n" {
		t.Errorf("%+v", got)
	}
	if got := get("proved", "--out", "object"); got.exit != exitOK || got.err != "6 bytes, crc64: opaque, not a block\n" || !strings.Contains(got.out, "crc64") {
		t.Errorf("%+v", got)
	}
	if b, err := os.ReadFile("object"); err != nil || string(b) != "opaque" {
		t.Errorf("the file has %q, %v", b, err)
	}
	expect(t, get("page", "--json"), exitOK, `"verification": "unverified"`, "")
	for key, says := range map[string]string{
		"longer": "said 6 bytes and sent 9", "shorter": "said 6 bytes and sent 3", "huge": "1 GiB at most",
		"absent": "hint: KEY is the whole key",
	} {
		got := get(key, "--out", key)
		expect(t, got, exitFailed, "", says)
		if _, err := os.Stat(key); !errors.Is(err, os.ErrNotExist) || got.out != "" {
			t.Errorf("%s: %q, and the file: %v", key, got.out, err)
		}
	}
	expect(t, s.run(t, "fabric", "object", "get", "attic"), exitUsage, "", "KEY is missing")
}

func TestDoctorAddsTheDaemonsFindings(t *testing.T) {
	d := newDaemon()
	s := newShell(t, d)
	s.env = []string{"UCX_TLS=tcp"}
	expect(t, s.run(t, "doctor"), exitOK, "env.UCX_TLS", "")
	d.findings = append(d.findings, &adminpb.Finding{Id: "kernel.memfd", Severity: adminpb.Severity_SEVERITY_ERR, Subject: "memfd", Reason: "no", Fix: "kernel"})
	expect(t, s.run(t, "doctor"), exitFailed, "ERR       daemon  kernel.memfd", "found 1 error")
	expect(t, s.run(t, "doctor", "--local"), exitOK, "0 errors", "")
	s.env = []string{"MERIDIAN_LNIK_LANES=1"}
	expect(t, s.run(t, "doctor", "--local"), exitFailed, "did you mean MERIDIAN_LINK_LANES?", "")
}

func TestDoctorWithoutADaemonWarns(t *testing.T) {
	expect(t, newShell(t, nil).run(t, "doctor"), exitOK, "daemon.reachable", "")
}

func TestErrorsLookup(t *testing.T) {
	s := newShell(t, nil)
	for _, name := range []string{"104", "CHECKSUM", "checksum"} {
		expect(t, s.run(t, "errors", "lookup", name), exitOK, "BLAKE3-128", "")
	}
	expect(t, s.run(t, "errors", "lookup", "9999"), exitFailed, "", `no code is called "9999"`)
	expect(t, s.run(t, "errors", "lookup", "checksumm"), exitFailed, "", `no code is called "checksumm"; did you mean CHECKSUM?`)
}

func TestConfigCommands(t *testing.T) {
	s := newShell(t, nil)
	write(t, "good.toml", "[agent]\nname = \"decode-1\"\n[link]\npsk = \"5b1e7f0c92d84a63b0f6a9d13e57c248\"\n")
	write(t, "bad.toml", "[agent]\nnname = \"decode-1\"\n[link]\nlanes = 99\n")
	expect(t, s.run(t, "config", "check", "good.toml"), exitOK, "ok  good.toml", "")
	expect(t, s.run(t, "config", "check", "bad.toml"), exitFailed, "bad.toml:4: link.lanes: 99 must be", "2 problems")
	expect(t, s.run(t, "config", "check", "absent.toml"), exitFailed, "absent.toml: no such file", "1 problem in")
	got := s.run(t, "config", "show", "--config", "good.toml", "--origin", "--changed")
	expect(t, got, exitOK, "good.toml:2", "")
	if strings.Contains(got.out, "0123456789abcdef") || !strings.Contains(got.out, "[redacted]") {
		t.Errorf("the secret:\n%s", got.out)
	}
	expect(t, s.run(t, "config", "show", "--config", "bad.toml"), exitFailed, "", "did you mean agent.name?")
	expect(t, s.run(t, "config", "show", "--config", "good.toml", "--admin", "/run/other.sock"), exitUsage, "", "--admin /run/other.sock: config show reads the files of this host")
	s.env = []string{"MERIDIAN_CONFIG=good.toml"}
	expect(t, s.run(t, "config", "show", "--changed"), exitOK, `"decode-1"`, "")
}

func TestTheAdminSocketComesFromTheConfiguration(t *testing.T) {
	d := newDaemon()
	s := newShell(t, d)
	socket := s.socket
	s.socket = "" // no variable
	write(t, "m.toml", "[admin]\nsocket = \""+socket+"\"\n")
	expect(t, s.run(t, "status", "--brief", "--config", "m.toml"), exitOK, "decode-1", "")
	expect(t, s.run(t, "status", "--brief", "--admin", socket), exitOK, "decode-1", "")
	// A certificate that was taken away is nothing to who asks a daemon for its state.
	write(t, "c.toml", "[admin]\nsocket = \""+socket+"\"\n[link.tls]\ncert = \"gone.pem\"\nkey = \"gone.pem\"\nca = \"gone.pem\"\n")
	expect(t, s.run(t, "status", "--brief", "--config", "c.toml"), exitOK, "decode-1", "")
	expect(t, s.run(t, "config", "check", "c.toml"), exitFailed, "c.toml:4: link.tls.cert: ", "1 problem")
	write(t, "bad.toml", "[admin]\nsokcet = \"x\"\n")
	expect(t, s.run(t, "status", "--config", "bad.toml"), exitFailed, "", "did you mean admin.socket?")
}

func TestFlagsComeFromVariables(t *testing.T) {
	s := newShell(t, newDaemon())
	s.env = []string{"MERIDIAN_CLI_OUTPUT=json", "MERIDIAN_CLI_STATUS_BRIEF=true"}
	expect(t, s.run(t, "status"), exitOK, `"drain": "serving"`, "")
	expect(t, s.run(t, "status", "-o", "table"), exitOK, "decode-1  ready", "")
	s.env = []string{"MERIDIAN_CLI_TIMEOUT=soon"}
	expect(t, s.run(t, "status"), exitUsage, "", `MERIDIAN_CLI_TIMEOUT="soon"`)
}

func TestColourOnlyOnATerminal(t *testing.T) {
	s := newShell(t, newDaemon())
	coloured := func(args ...string) bool { return strings.Contains(s.run(t, args...).out, "\x1b[32m") }
	if coloured("status") {
		t.Error("colour in a pipe")
	}
	s.terminal = true
	if !coloured("status") {
		t.Error("no colour on a terminal")
	}
	if coloured("status", "--no-color") || coloured("status", "-o", "json") {
		t.Error("colour against a flag")
	}
	s.env = []string{"NO_COLOR=1"}
	if coloured("status") {
		t.Error("colour against NO_COLOR")
	}
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestPutAndGetMeetByTheKey(t *testing.T) {
	s := newShell(t, nil)
	body := strings.Repeat("kv", 5000)
	write(t, "body", body)
	put := s.run(t, "block", "put", "body", "--tier", "ThinkActive")
	expect(t, put, exitOK, "", "")
	key := strings.TrimSpace(put.out)
	expect(t, s.run(t, "block", "put", "body", "-o", "json"), exitOK, `"existed": true`, "")
	if got := s.run(t, "block", "get", key); got.exit != exitOK || got.out != body || !s.engine.fetched {
		t.Errorf("exit %d, %d bytes, peers asked %v", got.exit, len(got.out), s.engine.fetched)
	}
	expect(t, s.run(t, "block", "get", key, "--out", "copy", "--local"), exitOK, "ThinkActive", "")
	if b, err := os.ReadFile("copy"); err != nil || string(b) != body || s.engine.fetched {
		t.Errorf("%d bytes, %v, peers asked %v", len(b), err, s.engine.fetched)
	}
	s.in = body
	if got := s.run(t, "block", "put", "-"); strings.TrimSpace(got.out) != key {
		t.Errorf("the same bytes from standard input have another key: %s", got.out)
	}
	if got := s.run(t, "block", "put", "-", "--tenant", "acme"); strings.TrimSpace(got.out) == key {
		t.Error("another tenant, the same key")
	}
	if got := s.run(t, "block", "put", "-", "--hash", "x"); strings.TrimSpace(got.out) == key {
		t.Error("another hash, the same key")
	}
}

func TestBlockFailures(t *testing.T) {
	s := newShell(t, nil)
	s.in = "0123456789"
	key := strings.TrimSpace(s.run(t, "block", "put", "-").out)
	expect(t, s.run(t, "block", "get", absentKey), exitFailed, "", "ABSENT")
	expect(t, s.run(t, "block", "put", "absent-file"), exitFailed, "", "no such file")
	expect(t, s.run(t, "block", "put", "-", "--block-bytes", "9"), exitUsage, "", "longer than a block")
	s.engine.corrupt = true
	got := s.run(t, "block", "get", key, "--out", "bad")
	expect(t, got, exitIntegrity, "", key[:12])
	if _, err := os.Stat("bad"); err == nil {
		t.Error("wrong bytes were written")
	}
	s.engine.dialErr = engineSocket.unreachable("engine.sock", os.ErrNotExist)
	expect(t, s.run(t, "block", "put", "-"), exitUnreachable, "", "is meridiand running on this host? --engine or MERIDIAN_ENGINE_SOCKET")
}

func TestCertificatesProveNameAndTenants(t *testing.T) {
	s := newShell(t, nil)
	expect(t, s.run(t, "cert", "issue", "--ca", "pki", "--name", "a"), exitFailed, "", "mrdn cert ca makes an authority")
	expect(t, s.run(t, "cert", "ca", "--dir", "pki"), exitOK, "ca.pem", "")
	expect(t, s.run(t, "cert", "ca", "--dir", "pki"), exitFailed, "", "is there already")
	expect(t, s.run(t, "cert", "issue", "--ca", "pki", "--dir", "pki", "--name", "prefill-1", "--tenant", "acme,globex"), exitOK, "globex", "")
	expect(t, s.run(t, "cert", "issue", "--ca", "pki", "--dir", "pki", "--name", "decode-1", "--tenant", "acme"), exitOK, "acme", "")
	for _, key := range []string{"ca-key.pem", "prefill-1-key.pem"} {
		if i, err := os.Stat(filepath.Join("pki", key)); err != nil || i.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", key, i, err)
		}
	}
	handshake(t, "pki", "prefill-1", "decode-1")
}

// The routes are shown with their counts; a block that would go nowhere, and a path that
// does not work, are failures.
func TestRoutesAreAskedTestedAndAdded(t *testing.T) {
	s := newShell(t, newDaemon())
	expect(t, s.run(t, "fabric", "routes"), exitOK, "from=nixl -> prefer mooncake", "")
	expect(t, s.run(t, "route", "explain", "--bytes", "1MiB"), exitOK, "to mooncake/app", "")
	expect(t, s.run(t, "route", "explain", "--from", "nixl"), exitOK, "since link cannot take it: UNREACHABLE", "")
	expect(t, s.run(t, "route", "explain", "--from", "link"), exitFailed, "nowhere: no route is left", "the block would go nowhere")
	expect(t, s.run(t, "route", "explain", "--tier", "hot"), exitUsage, "", "--tier")
	expect(t, s.run(t, "route", "explain", "--bytes", "many"), exitUsage, "", "--bytes")
	expect(t, s.run(t, "route", "test"), exitOK, "UNREACHABLE no lane", "")
	expect(t, s.run(t, "route", "test"), exitOK, "1.5ms", "")
	expect(t, s.run(t, "route", "test", "--from", "link"), exitFailed, "failed", "no path works")
	expect(t, s.run(t, "route", "test", "--from", "bad"), exitIntegrity, "failed", "CHECKSUM")
	expect(t, s.run(t, "route", "add"), exitUsage, "", "--fabric is missing")
	expect(t, s.run(t, "route", "add", "--fabric", "link", "--min-bytes", "x"), exitUsage, "", "--min-bytes")
	expect(t, s.run(t, "route", "add", "--fabric", "link", "--tier", "ThinkActive"), exitOK, "tier = \"think_active\"", "")
}
