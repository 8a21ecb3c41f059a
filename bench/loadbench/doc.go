// Package loadbench measures what an engine gets from its daemon: the load of a
// large prompt's blocks from other nodes, and a PUT of as many, through the
// engine socket. bench/linkbench measures less of the way: pulls between two
// links.
//
// Every daemon is a process of its own with a configuration file, as an operator
// runs it. The measuring process is the engine. Of each line:
//
//	S, H    plain sockets, out of as many processes as there are holders, and the hash
//	        on one core, as in bench/linkbench
//	bound   1 / (1/S + 1/(cores × H)): nobody who verifies can be faster
//	cold    the first load of a daemon, into an arena that held nothing before, once
//	        the daemon has made ready what memory it keeps ready
//	warm    the same load again: the blocks are gone, the memory is there
//
// and of a PUT:
//
//	C, CH   a copy, and copy and hash in one pass, on one core
//	cold    as above
//	warm    once more bytes than the arena has were put
//	bound   the slower of C, since one engine copies into its staging ring, and
//	        cores / (1/C + 1/CH), since all of it is work for processors
//
// The package may import what bench may.
package loadbench
