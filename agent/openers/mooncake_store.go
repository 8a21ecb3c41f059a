package openers

import (
	"strings"

	"meridian/adapters/mooncake"
	"meridian/adapters/mooncake/store"
	"meridian/agent/config"
)

// checkStoreNode checks the keys of the storage node.
func checkStoreNode(s *mooncakeSettings, bad config.Bad) {
	switch {
	case s.lend == 0:
		for key, value := range map[string]string{"store_masters": s.masters, "store_cluster": s.storeCluster} {
			if value != "" {
				bad(key, "%q is of no use without store_node_bytes", value)
			}
		}
	case s.lend < store.MinLent:
		bad("store_node_bytes", "%d, want %d at least", s.lend, store.MinLent)
	case s.listen == "":
		bad("store_node_bytes", "%d is of no use without listen, by which the memory is reached", s.lend)
	case s.masters == "":
		bad("store_masters", "empty, and store_node_bytes is %d: say where mooncake_master is", s.lend)
	default:
		checkMasters(s.masters, s.storeCluster, s.insecure, "store_masters", bad)
	}
}

// checkMasters checks where masters are.
func checkMasters(masters, cluster string, insecure bool, key string, bad config.Bad) {
	_, closing, err := mooncake.Masters(masters, cluster)
	_ = closing()
	switch _, list, found := strings.Cut(masters, "://"); {
	case err != nil:
		bad(key, "%v", err)
	case !found && !allOnThisHost(masters) && !insecure, found && !allOnThisHost(list) && !insecure:
		bad(key, "%q is beyond loopback, and Mooncake has no TLS: set insecure = true", masters)
	}
}
