// Package spaces knows which namespaces an agent has, and who has each open: its
// engines and its configuration, which decide the geometry, and its peers, which are
// compared with them.
//
// It may import blocks/quota and wire. It must never start a goroutine, nor wait for
// anything but its own lock: a session of the link calls it while it is locked.
package spaces
