// Package deploy holds what an installation needs in addition to the binaries, and the
// tests that hold it against them. It has no code.
//
//   - meridian.toml: the configuration with comments, fit to be installed as
//     /etc/meridian/meridian.toml. Its tests load it with agent/config, as it
//     is and with every commented line switched on.
//   - systemd: the unit, and the user it runs as (sysusers.d).
//   - grafana: the dashboard and the program that makes it.
//
// The tests may import agent/config. Nothing imports this package.
package deploy
