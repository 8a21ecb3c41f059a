package openai

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
)

// guard keeps out who should not ask at all. A web page that the user looks at
// can reach a loopback port too: by its own requests, which carry an Origin, and
// by a name of its own that it lets resolve to this host (DNS rebinding), which
// shows in Host.
type guard struct {
	token   [sha256.Size]byte
	locked  bool            // a token is needed
	hosts   map[string]bool // names and addresses, beside those of loopback
	anyIP   bool            // the listener is on every address of the host
	origins map[string]bool
}

func newGuard(c *Config) (*guard, error) {
	g := &guard{locked: c.Token != "", token: sha256.Sum256([]byte(c.Token)), hosts: map[string]bool{}, origins: map[string]bool{}}
	for _, h := range c.Hosts {
		if h == "" {
			return nil, errors.New("openai: an entry of Config.Hosts is empty")
		}
		name := hostName(h)
		if ip, err := netip.ParseAddr(name); name == "" || err == nil && ip.IsUnspecified() {
			g.anyIP = true
			continue
		}
		g.hosts[name] = true
	}
	for _, o := range c.Origins {
		u, err := url.Parse(o)
		if err != nil || u.Scheme == "" || u.Host == "" || u.Scheme+"://"+u.Host != o {
			return nil, fmt.Errorf("openai: the origin %q must be scheme://host[:port]", o)
		}
		g.origins[strings.ToLower(o)] = true
	}
	return g, nil
}

// hostName is a Host header or a listen address without its port, in lower case.
func hostName(h string) string {
	if name, _, err := net.SplitHostPort(h); err == nil {
		h = name
	}
	h = strings.TrimSuffix(strings.TrimPrefix(h, "["), "]")
	return strings.TrimSuffix(strings.ToLower(h), ".")
}

func (g *guard) host(h string) bool {
	name := hostName(h)
	if name == "localhost" || g.hosts[name] {
		return true
	}
	ip, err := netip.ParseAddr(name)
	return err == nil && (g.anyIP || ip.IsLoopback())
}

// authorised compares digests, so that neither the content nor the length of the
// right one shows in the time it takes.
func (g *guard) authorised(r *http.Request) bool {
	scheme, given, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	sum := sha256.Sum256([]byte(strings.TrimSpace(given)))
	return strings.EqualFold(scheme, "Bearer") && subtle.ConstantTimeCompare(sum[:], g.token[:]) == 1
}

// check refuses a request, or says that it is a preflight of an allowed origin,
// which is answered without a token because browsers send none with it.
func (g *guard) check(w http.ResponseWriter, r *http.Request) (preflight bool, _ *Error) {
	if origins := r.Header.Values("Origin"); len(origins) > 0 {
		o := strings.ToLower(origins[0])
		if len(origins) > 1 || !g.origins[o] {
			return false, &Error{Status: http.StatusForbidden, Type: typeInvalid, Code: "origin_not_allowed",
				Message: fmt.Sprintf("requests of the web page at %q are not allowed here", origins[0])}
		}
		h := w.Header()
		h.Set("Access-Control-Allow-Origin", origins[0])
		h.Set("Vary", "Origin")
		preflight = r.Method == http.MethodOptions
	}
	known := g.locked && g.authorised(r)
	if !known && !g.host(r.Host) { // a page that rebinds a name does not know the token
		return false, &Error{Status: http.StatusForbidden, Type: typeInvalid, Code: "host_not_allowed",
			Message: fmt.Sprintf("the Host %q is not this node: it must be a loopback address or a configured name", r.Host)}
	}
	if g.locked && !known && !preflight && r.URL.Path != healthPath {
		w.Header().Set("WWW-Authenticate", "Bearer")
		return false, &Error{Status: http.StatusUnauthorized, Type: typeInvalid, Code: "invalid_api_key",
			Message: "the bearer token is missing or wrong"}
	}
	return preflight, nil
}

func allowPreflight(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Access-Control-Allow-Methods", "GET, POST")
	h.Set("Access-Control-Allow-Headers", "Authorization, Content-Type")
	h.Set("Access-Control-Max-Age", "600")
	w.WriteHeader(http.StatusNoContent)
}
