package httpguard

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
)

// Config says who may ask. Loopback addresses and localhost are always allowed
// as Host.
type Config struct {
	Hosts   []string // names or listen addresses that Host may be; an unspecified address allows every literal one
	Origins []string // scheme://host[:port] of web pages that may call; without any, none may
	Token   string   // bearer token that every call needs that is not open; empty: none

	// Table is the configuration's table that has the keys hosts and origins, for
	// refusals that say what to change.
	Table string
	// HostsKey, in place of Table, is the key that has the hosts; no key has origins.
	HostsKey string
}

// Guard is a checked Config. It may be used by many goroutines.
type Guard struct {
	token   [sha256.Size]byte
	locked  bool            // a token is needed
	hosts   map[string]bool // names and addresses, besides those of loopback
	anyIP   bool            // the listener is on every address of the host
	origins map[string]bool
	keys    map[string]string // of hosts and origins, where there is one
}

// Refusal is why a request is not answered.
type Refusal struct {
	Status int    // of HTTP
	Code   string // host_not_allowed, origin_not_allowed or invalid_api_key
	Text   string
}

func (r *Refusal) Error() string { return r.Text }

// ConfigError is an entry that is none.
type ConfigError struct {
	Field string // hosts or origins
	Text  string // what is wrong, with the value
}

func (e *ConfigError) Error() string { return e.Field + ": " + e.Text }

// New checks a Config. Its error is a *ConfigError.
func New(c Config) (*Guard, error) {
	g := &Guard{locked: c.Token != "", token: sha256.Sum256([]byte(c.Token)), hosts: map[string]bool{}, origins: map[string]bool{}, keys: map[string]string{}}
	if c.Table != "" {
		g.keys["hosts"], g.keys["origins"] = c.Table+".hosts", c.Table+".origins"
	} else if c.HostsKey != "" {
		g.keys["hosts"] = c.HostsKey
	}
	for _, h := range c.Hosts {
		if h == "" {
			return nil, &ConfigError{"hosts", "an entry is empty"}
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
			return nil, &ConfigError{"origins", fmt.Sprintf("%q is not scheme://host[:port]", o)}
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

func (g *Guard) host(h string) bool {
	name := hostName(h)
	if name == "localhost" || g.hosts[name] {
		return true
	}
	ip, err := netip.ParseAddr(name)
	return err == nil && (g.anyIP || ip.IsLoopback())
}

// authorised compares digests, so that neither the content nor the length of the
// right token shows in the time it takes.
func (g *Guard) authorised(r *http.Request) bool {
	scheme, given, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	sum := sha256.Sum256([]byte(strings.TrimSpace(given)))
	return strings.EqualFold(scheme, "Bearer") && subtle.ConstantTimeCompare(sum[:], g.token[:]) == 1
}

// Check refuses a request, or says that it is a preflight of an allowed origin,
// which is answered by AllowPreflight and needs no token, since browsers send
// none with it. A request that is open needs no token either. Check sets the
// headers that belong to its answer.
func (g *Guard) Check(w http.ResponseWriter, r *http.Request, open bool) (preflight bool, _ *Refusal) {
	if origins := r.Header.Values("Origin"); len(origins) > 0 {
		o := strings.ToLower(origins[0])
		if len(origins) > 1 || !g.origins[o] {
			return false, &Refusal{http.StatusForbidden, "origin_not_allowed",
				fmt.Sprintf("requests of the web page at %q are not allowed here%s", clip(origins[0]), g.hint("origins"))}
		}
		h := w.Header()
		h.Set("Access-Control-Allow-Origin", origins[0])
		h.Set("Vary", "Origin")
		preflight = r.Method == http.MethodOptions
	}
	known := g.locked && g.authorised(r)
	if !known && !g.host(r.Host) { // a page that rebinds a name does not know the token
		return false, &Refusal{http.StatusForbidden, "host_not_allowed",
			fmt.Sprintf("the Host %q is not this node: it must be a loopback address or a configured name%s", clip(r.Host), g.hint("hosts"))}
	}
	if g.locked && !known && !preflight && !open {
		w.Header().Set("WWW-Authenticate", "Bearer")
		return false, &Refusal{http.StatusUnauthorized, "invalid_api_key", "the bearer token is missing or wrong"}
	}
	return preflight, nil
}

// hint names the key that allows more.
func (g *Guard) hint(field string) string {
	key := g.keys[field]
	if key == "" {
		return ""
	}
	return "; " + key + " lists those that are"
}

// maxShown bounds what a refusal repeats of a header, in bytes.
const maxShown = 256

func clip(s string) string {
	if len(s) > maxShown {
		return s[:maxShown] + "…"
	}
	return s
}

// AllowPreflight answers a preflight. A browser may keep the answer for ten
// minutes.
func AllowPreflight(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Access-Control-Allow-Methods", "GET, POST")
	h.Set("Access-Control-Allow-Headers", "Authorization, Content-Type")
	h.Set("Access-Control-Max-Age", "600")
	w.WriteHeader(http.StatusNoContent)
}

// Wrap puts the guard in front of every path of next. Refusals are plain text.
func (g *Guard) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		preflight, refused := g.Check(w, r, false)
		switch {
		case refused != nil:
			http.Error(w, refused.Text, refused.Status)
		case preflight:
			AllowPreflight(w)
		default:
			next.ServeHTTP(w, r)
		}
	})
}
