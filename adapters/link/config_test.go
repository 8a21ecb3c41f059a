package link

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"meridian/wire"
	proto "meridian/wire/link"
)

func TestLanesAreWithinTheProtocolsLimit(t *testing.T) {
	cfg := start(t, 1, 10, "", nil).cfg
	for given, want := range map[int]int{
		-1: 0, 0: min(4, runtime.NumCPU()), 1: 1, 3: 3, proto.MaxLanes: proto.MaxLanes, proto.MaxLanes + 1: 0,
	} {
		cfg.Lanes = given
		got, err := cfg.withDefaults()
		switch {
		case want == 0 && !errors.Is(err, wire.CodeConfig):
			t.Errorf("%d lanes: %v, want CONFIG", given, err)
		case want != 0 && (err != nil || got.Lanes != want):
			t.Errorf("%d lanes are %d, %v; want %d", given, got.Lanes, err, want)
		}
	}
}

// Kubernetes moves all files of a secret at once, between any two reads of ours.
func TestCertificateFilesAreOfOneGeneration(t *testing.T) {
	paths := [3]string{"cert", "key", "ca"}
	for swap := 1; swap <= 7; swap++ {
		reads := 0
		pem, err := readTogether(paths, func(path string) ([]byte, error) {
			if reads++; reads > swap {
				return []byte(path + " new"), nil
			}
			return []byte(path + " old"), nil
		})
		age := strings.TrimPrefix(string(pem[0]), "cert ")
		if err != nil || string(pem[1]) != "key "+age || string(pem[2]) != "ca "+age {
			t.Errorf("moved after %d reads: %q, %v", swap, pem, err)
		}
	}
	reads := 0
	_, err := readTogether(paths, func(string) ([]byte, error) { reads++; return []byte{byte(reads)}, nil })
	if !errors.Is(err, wire.CodeConfig) || reads > 3*maxReadings {
		t.Errorf("files that never stop changing: %v after %d reads", err, reads)
	}
	reads = 0
	pem, err := readTogether(paths, func(path string) ([]byte, error) {
		if reads++; reads <= len(paths) {
			return nil, nil // they are being written
		}
		return []byte(path), nil
	})
	if err != nil || string(pem[0]) != "cert" {
		t.Errorf("files that were empty at first: %q, %v", pem, err)
	}
}

func pemOf(kind string, der ...[]byte) (out []byte) {
	for _, b := range der {
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b})...)
	}
	return out
}

// keyPEM is the private key of a certificate.
func keyPEM(t *testing.T, of *TLS) []byte {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(of.Certificate.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	return pemOf("PRIVATE KEY", der)
}

// loaded is what LoadTLS says of files with a certificate, its key and an authority.
func loaded(t *testing.T, cert, key, ca []byte) (*TLS, error) {
	t.Helper()
	var paths [3]string
	for i, b := range [][]byte{cert, key, ca} {
		paths[i] = filepath.Join(t.TempDir(), tlsFiles[i])
		if err := os.WriteFile(paths[i], b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return LoadTLS(paths[0], paths[1], paths[2])
}

var tlsFiles = [3]string{"cert.pem", "key.pem", "ca.pem"}

// Each file of LoadTLS that proves nothing to any peer is refused by its name; what else
// lies in them, and certificates that are over beside one that is not, are no fault.
func TestCertificateFilesThatProveNothingAreRefused(t *testing.T) {
	ca, other := newAuthority(t), newAuthority(t)
	own, over := ca.issue("a", "t"), ca.issueAs("a", func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }, "t")
	later := ca.issueAs("a", func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Minute) }, "t")
	der := func(of *TLS) []byte { return of.Certificate.Certificate[0] }
	cert, key, authority := pemOf("CERTIFICATE", der(own)), keyPEM(t, own), pemOf("CERTIFICATE", ca.cert.Raw)
	signer := ca.issueAs("a", func(c *x509.Certificate) {
		c.IsCA, c.BasicConstraintsValid, c.KeyUsage = true, true, x509.KeyUsageCertSign|x509.KeyUsageDigitalSignature
	}, "t")
	garbage := []byte{1, 2, 3}
	for name, c := range map[string]struct {
		cert, key, ca []byte
		file          int // -1: taken
		text          string
	}{
		"all three":                     {cert, key, authority, -1, ""},
		"a chain that is over":          {pemOf("CERTIFICATE", der(own), der(over)), key, authority, -1, ""},
		"a key beside the certificate":  {slices.Concat(key, cert), key, slices.Concat(key, authority), -1, ""},
		"an authority that is over too": {cert, key, pemOf("CERTIFICATE", der(over), ca.cert.Raw), -1, ""},
		"no certificate":                {key, key, authority, 0, "no certificate in it"},
		"an empty certificate":          {nil, key, authority, 0, "no certificate in it"},
		"a certificate that is over":    {pemOf("CERTIFICATE", der(over), der(own)), keyPEM(t, over), authority, 0, "valid from"},
		"a certificate of later":        {pemOf("CERTIFICATE", der(later)), keyPEM(t, later), authority, 0, "valid from"},
		"a certificate of garbage":      {pemOf("CERTIFICATE", garbage), key, authority, 0, "certificate 1 in it"},
		"garbage behind the first":      {pemOf("CERTIFICATE", der(own), garbage), key, authority, 0, "certificate 2 in it"},
		"another's key":                 {cert, keyPEM(t, later), authority, 1, "is not the private key"},
		"no authority":                  {cert, key, key, 2, "no certificate in it"},
		"an authority of garbage":       {cert, key, pemOf("CERTIFICATE", ca.cert.Raw, garbage), 2, "certificate 2 in it"},
		"its own as the authority":      {cert, key, cert, 2, "no peer could be verified"},
		"its own twice":                 {cert, key, slices.Concat(cert, cert), 2, "no peer could be verified"},
		"its own beside the authority":  {cert, key, slices.Concat(cert, authority), -1, ""},
		"an authority's own":            {pemOf("CERTIFICATE", der(signer)), keyPEM(t, signer), pemOf("CERTIFICATE", der(signer)), -1, ""},
		"authorities that are over":     {cert, key, pemOf("CERTIFICATE", der(over), der(over)), 2, "valid from"},
	} {
		got, err := loaded(t, c.cert, c.key, c.ca)
		if c.file < 0 {
			if err != nil || !bytes.Contains(c.cert, pemOf("CERTIFICATE", got.Certificate.Leaf.Raw)) {
				t.Errorf("%s: %v", name, err)
			} else if doubts := got.Doubts("a"); len(doubts) != 0 {
				t.Errorf("%s: %q", name, doubts)
			}
			continue
		}
		var wrong *TLSError
		if !errors.As(err, &wrong) || wrong.File != c.file || !strings.Contains(err.Error(), c.text) ||
			!strings.Contains(err.Error(), tlsFiles[c.file]) || !errors.Is(err, wire.CodeConfig) {
			t.Errorf("%s: %v, want file %d and %q", name, err, c.file, c.text)
		}
	}
	one, err := loaded(t, cert, key, authority)
	if err != nil {
		t.Fatal(err)
	}
	two, err := loaded(t, cert, key, slices.Concat(authority, pemOf("CERTIFICATE", other.cert.Raw)))
	if err != nil {
		t.Fatal(err)
	}
	if one.Sums[0] != two.Sums[0] || one.Sums[1] != two.Sums[1] || one.Sums[2] == two.Sums[2] || one.Sums[0] == one.Sums[1] {
		t.Error("the sums are not those of the files")
	}
}

func leafOf(t *testing.T, of *TLS) *x509.Certificate {
	t.Helper()
	c, err := x509.ParseCertificate(of.Certificate.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A certificate of another name, or of an authority that peers do not have, is doubted;
// one of an authority below theirs is not, where it comes with that.
func TestACertificateThatPeersMayNotTakeIsDoubted(t *testing.T) {
	ca, other := newAuthority(t), newAuthority(t)
	below := &authority{tb: t, next: 1000, pool: ca.pool}
	middle := ca.issueAs("below", func(c *x509.Certificate) {
		c.IsCA, c.BasicConstraintsValid, c.KeyUsage = true, true, x509.KeyUsageCertSign
	})
	below.cert, below.key = leafOf(t, middle), middle.Certificate.PrivateKey.(*ecdsa.PrivateKey)
	own := below.issue("a", "t")
	chain := [][]byte{own.Certificate.Certificate[0], middle.Certificate.Certificate[0]}
	for name, c := range map[string]struct {
		agent string
		chain [][]byte
		ca    []byte
		want  []string
	}{
		"with its chain":    {"a", chain, ca.cert.Raw, nil},
		"without its chain": {"a", chain[:1], ca.cert.Raw, []string{"not signed by the authority"}},
		"another authority": {"a", chain, other.cert.Raw, []string{"not signed by the authority"}},
		"another name":      {"b", chain, ca.cert.Raw, []string{"is the certificate of \"a\""}},
		"both":              {"b", chain, other.cert.Raw, []string{"is the certificate of \"a\"", "not signed by the authority"}},
	} {
		got, err := loaded(t, pemOf("CERTIFICATE", c.chain...), keyPEM(t, own), pemOf("CERTIFICATE", c.ca))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		doubts := got.Doubts(c.agent)
		if len(doubts) != len(c.want) {
			t.Errorf("%s: %q", name, doubts)
			continue
		}
		for i, want := range c.want {
			if !strings.Contains(doubts[i], want) {
				t.Errorf("%s: %q, want %q", name, doubts[i], want)
			}
		}
	}
}
