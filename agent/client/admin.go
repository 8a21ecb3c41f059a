package client

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"meridian/agent/adminpb"
)

// Admin is a connection to a daemon's admin API, with the generated methods
// of meridian.admin.v1. Its calls may run at the same time. Errors of the
// daemon carry an adminpb.ErrorDetail: see adminpb.Detail.
type Admin struct {
	adminpb.AdminClient
	conn *grpc.ClientConn
}

// DialAdmin connects to the admin socket of a daemon. The target is a path or
// unix:///path; the API is served nowhere else, and the socket's mode says who
// may use it. It tries the socket once, so that an absent daemon (matches
// fs.ErrNotExist or ECONNREFUSED) and a refused one (fs.ErrPermission) are told
// apart here; later calls connect again by themselves.
func DialAdmin(ctx context.Context, target string, opts ...grpc.DialOption) (*Admin, error) {
	path, err := socketPath(target)
	if err != nil {
		return nil, err
	}
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("admin socket %s: %w", path, err)
	}
	_ = c.Close()
	// Credentials of the transport are those of the socket: its mode and the
	// peer's uid, which the kernel vouches for.
	opts = append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithNoProxy(),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return d.DialContext(ctx, "unix", path)
		}),
	}, opts...)
	conn, err := grpc.NewClient("passthrough:///localhost", opts...)
	if err != nil {
		return nil, fmt.Errorf("admin socket %s: %w", path, err)
	}
	return &Admin{AdminClient: adminpb.NewAdminClient(conn), conn: conn}, nil
}

// Close ends the connection; running calls fail.
func (a *Admin) Close() error { return a.conn.Close() }

// socketPath takes the path out of a target.
func socketPath(target string) (string, error) {
	path := target
	if scheme, rest, ok := strings.Cut(target, "://"); ok {
		if scheme != "unix" {
			return "", fmt.Errorf("admin socket %q: the admin API is a Unix socket: give a path or unix:///path", target)
		}
		path = rest
	}
	if path == "" {
		return "", fmt.Errorf("admin socket %q: no path", target)
	}
	return filepath.Clean(path), nil
}
