package agent

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestNamesAndPagesOfTheConfigurationAreAllowed(t *testing.T) {
	dir := shortDir(t)
	cfg := loadConfig(t, dir, "one", "")
	cfg.Admin.Hosts, cfg.Admin.Origins = []string{"node-1.cluster"}, []string{"https://ops.example"}
	n := startConfig(t, cfg)
	n.ready(t)
	for _, c := range []struct {
		host, origin string
		code         int
	}{{"node-1.cluster:9090", "", 200}, {"node-1.cluster", "https://ops.example", 200}, {"node-2.cluster", "", 403}, {"node-1.cluster", "https://evil.example", 403}} {
		r := httptest.NewRequest(http.MethodGet, n.Ports()["http"][0]+"/varz", nil)
		r.RequestURI, r.Host = "", c.host
		if c.origin != "" {
			r.Header.Set("Origin", c.origin)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != c.code {
			t.Errorf("%+v: %s", c, resp.Status)
		}
	}
}
