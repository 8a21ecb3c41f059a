// Package bridgetest tests the gateway with real parts of several worlds at once: engines
// of Mooncake, agents of NIXL and daemons. It has tests only, since no adapter may import
// another.
package bridgetest
