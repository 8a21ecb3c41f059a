package capi

// symbol is a function of the library.
type symbol int

const (
	createConfiguredAgent symbol = iota
	destroyAgent
	getAvailablePlugins
	stringListSize
	stringListGet
	destroyStringList
	getPluginParams
	destroyMemList
	destroyParams
	paramsAdd
	createBackend
	destroyBackend
	createOptArgs
	destroyOptArgs
	optArgsAddBackend
	optArgsSetNotifMsg
	optArgsSetHasNotif
	createRegDlist
	destroyRegDlist
	regDlistAddDesc
	registerMem
	deregisterMem
	getLocalMD
	loadRemoteMD
	invalidateRemoteMD
	createXferDlist
	destroyXferDlist
	xferDlistAddDesc
	createXferReq
	postXferReq
	getXferStatus
	releaseXferReq
	destroyXferReq
	createNotifMap
	destroyNotifMap
	notifMapClear
	notifMapSize
	notifMapGetAgentAt
	notifMapGetNotifsSize
	notifMapGetNotif
	getNotifs
	genNotif
	isStub
	prepXferDlist
	makeXferReq
	releaseXferDlistHandle
	symbols
)

var names = [symbols]string{
	createConfiguredAgent: "create_configured_agent",
	destroyAgent:          "destroy_agent",
	getAvailablePlugins:   "get_available_plugins",
	stringListSize:        "string_list_size",
	stringListGet:         "string_list_get",
	destroyStringList:     "destroy_string_list",
	getPluginParams:       "get_plugin_params",
	destroyMemList:        "destroy_mem_list",
	destroyParams:         "destroy_params",
	paramsAdd:             "params_add",
	createBackend:         "create_backend",
	destroyBackend:        "destroy_backend",
	createOptArgs:         "create_opt_args",
	destroyOptArgs:        "destroy_opt_args",
	optArgsAddBackend:     "opt_args_add_backend",
	optArgsSetNotifMsg:    "opt_args_set_notif_msg",
	optArgsSetHasNotif:    "opt_args_set_has_notif",
	createRegDlist:        "create_reg_dlist",
	destroyRegDlist:       "destroy_reg_dlist",
	regDlistAddDesc:       "reg_dlist_add_desc",
	registerMem:           "register_mem",
	deregisterMem:         "deregister_mem",
	getLocalMD:            "get_local_md",
	loadRemoteMD:          "load_remote_md",
	invalidateRemoteMD:    "invalidate_remote_md",
	createXferDlist:       "create_xfer_dlist",
	destroyXferDlist:      "destroy_xfer_dlist",
	xferDlistAddDesc:      "xfer_dlist_add_desc",
	createXferReq:         "create_xfer_req",
	postXferReq:           "post_xfer_req",
	getXferStatus:         "get_xfer_status",
	releaseXferReq:        "release_xfer_req",
	destroyXferReq:        "destroy_xfer_req",
	createNotifMap:        "create_notif_map",
	destroyNotifMap:       "destroy_notif_map",
	notifMapClear:         "notif_map_clear",
	notifMapSize:          "notif_map_size",
	notifMapGetAgentAt:    "notif_map_get_agent_at",
	notifMapGetNotifsSize: "notif_map_get_notifs_size",
	notifMapGetNotif:      "notif_map_get_notif",
	getNotifs:             "get_notifs",
	genNotif:              "gen_notif",
	isStub:                "is_stub",

	prepXferDlist:          "prep_xfer_dlist",
	makeXferReq:            "make_xfer_req",
	releaseXferDlistHandle: "release_xfer_dlist_handle",
}

// optional are functions without which a library can be used all the same: Prepares says
// whether they are there.
var optional = map[symbol]bool{prepXferDlist: true, makeXferReq: true, releaseXferDlistHandle: true}

func (s symbol) String() string { return "nixl_capi_" + names[s] }
