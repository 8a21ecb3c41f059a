//go:build tools_tmp

package meridian

import (
	_ "github.com/BurntSushi/toml"
	_ "github.com/cockroachdb/datadriven"
	_ "github.com/grafana/grafana-foundation-sdk/go/dashboard"
	_ "github.com/grafana/grafana-foundation-sdk/go/timeseries"
	_ "github.com/grafana/grafana-foundation-sdk/go/stat"
	_ "github.com/prometheus/client_golang/prometheus/promhttp"
	_ "github.com/prometheus/client_golang/prometheus/testutil"
	_ "github.com/prometheus/client_golang/prometheus/collectors"
	_ "github.com/spf13/cobra"
	_ "github.com/spf13/cobra/doc"
	_ "go.opentelemetry.io/otel"
	_ "go.opentelemetry.io/otel/trace"
	_ "go.yaml.in/yaml/v3"
	_ "golang.org/x/sys/unix"
	_ "golang.org/x/term"
	_ "google.golang.org/grpc"
	_ "google.golang.org/grpc/health"
	_ "google.golang.org/grpc/reflection"
	_ "google.golang.org/protobuf/proto"
	_ "github.com/zeebo/blake3"
	_ "github.com/mmcloughlin/avo/build"
	_ "github.com/klauspost/cpuid/v2"
)
