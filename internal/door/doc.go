// Package door accepts connections of strangers within bounds: the part that all
// listeners of Mooncake's and NIXL's protocols have in common.
//
// Anybody who can reach a listener can open connections and say nothing. A source
// address has a share of all places, which is the quota room's to say, and all doors of a
// daemon count together. Where a newcomer is above a limit, the oldest
// connection that has not proved itself makes room, by the rules of package halfopen;
// where there is none, the newcomer is refused. A connection that has proved itself
// keeps its place for as long as it lives: Mooncake's engines fail a transfer for each
// idle connection that is closed, and to NIXL's a connection is the sign that they live.
//
// A connection that is let in has little in the kernel that its peer does not take, and
// Shares has those wait in their source's turn who find no share of something.
// Ranges are addresses that may come in, and that a reload can change.
//
// It may import the standard library, x/sys and blocks/quota and internal/halfopen.
// It must never read or write a connection.
package door
