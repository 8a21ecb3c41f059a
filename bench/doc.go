// Package bench and the packages below it measure Meridian and replay real
// request traces through it.
//
// They may import everything but cmd. They must never be imported by the
// daemon: what a measurement needs from a room, the room exports.
package bench
