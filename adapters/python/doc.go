// Package python holds no code of the daemon: the folder has the Python package
// meridian, the engine's side of the block socket, and this one the tests that run it
// with real daemons. See README.md.
package python
