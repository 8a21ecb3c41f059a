package main

import (
	"encoding/json"
	"strings"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"

	"meridian/deploy/grafana"
)

// panelHeight is in grid units; one height keeps the rows even.
const panelHeight = 8

// source is the board's data source: a variable, so that the board fits every
// installation.
var source = common.DataSourceRef{Type: new("prometheus"), Uid: new("${datasource}")}

// render makes the board's JSON.
func render() ([]byte, error) {
	b := dashboard.NewDashboardBuilder("Meridian") //nolint:staticcheck // the schema that every Grafana reads
	b.Uid("meridian-daemon").
		Description("One or more meridiand. Made by go generate ./deploy/grafana.").
		Tags([]string{"meridian"}).
		Time("now-1h", "now").
		Refresh("30s").
		Timezone("browser").
		Readonly().
		Tooltip(dashboard.DashboardCursorSyncCrosshair).
		WithVariable(dashboard.NewDatasourceVariableBuilder("datasource").Label("Data source").Type("prometheus")).
		WithVariable(dashboard.NewQueryVariableBuilder("instance").
			Label("Daemon").
			Datasource(source).
			Query(dashboard.StringOrMap{String: new("label_values(meridian_build_info, instance)")}).
			Refresh(dashboard.VariableRefreshOnTimeRangeChanged).
			Sort(dashboard.VariableSortAlphabeticalAsc).
			Multi(true).
			IncludeAll(true).
			AllValue(".*"))
	id := uint32(0)
	for _, r := range grafana.Rows() {
		id++
		b.WithRow(dashboard.NewRowBuilder(r.Title).Id(id))
		for _, p := range r.Panels {
			id++
			b.WithPanel(panel(p, id))
		}
	}
	d, err := b.Build()
	if err != nil {
		return nil, err
	}
	out, err := json.MarshalIndent(d, "", "  ")
	return append(out, '\n'), err
}

func panel(p grafana.Panel, id uint32) cog.Builder[dashboard.Panel] {
	if p.Kind == grafana.Tile || p.Kind == grafana.Names {
		return tile(p, id)
	}
	b := timeseries.NewPanelBuilder().
		Id(id).
		Title(p.Title).
		Description(description(p)).
		Datasource(source).
		Unit(p.Unit).
		Min(0).
		Span(p.Width).
		Height(panelHeight).
		Thresholds(thresholds(p)).
		FillOpacity(8).
		ShowPoints(common.VisibilityModeNever).
		Legend(common.NewVizLegendOptionsBuilder().
			ShowLegend(true).
			DisplayMode(common.LegendDisplayModeList).
			Placement(common.LegendPlacementBottom)).
		Tooltip(common.NewVizTooltipOptionsBuilder().
			Mode(common.TooltipDisplayModeMulti).
			Sort(common.SortOrderDescending))
	if p.Max > 0 {
		b.AxisSoftMax(p.Max)
	}
	if p.Kind == grafana.Stack {
		b.FillOpacity(40).Stacking(common.NewStackingConfigBuilder().Mode(common.StackingModeNormal))
	}
	if len(p.Steps) > 0 {
		b.ThresholdsStyle(common.NewGraphThresholdsStyleConfigBuilder().Mode(common.GraphThresholdsStyleModeDashed))
	}
	for i, q := range p.Queries {
		b.WithTarget(query(q, i))
	}
	return b
}

func tile(p grafana.Panel, id uint32) cog.Builder[dashboard.Panel] {
	b := stat.NewPanelBuilder().
		Id(id).
		Title(p.Title).
		Description(description(p)).
		Datasource(source).
		Unit(p.Unit).
		Span(p.Width).
		Height(panelHeight).
		Thresholds(thresholds(p)).
		GraphMode(common.BigValueGraphModeNone).
		ColorMode(common.BigValueColorModeBackground).
		Orientation(common.VizOrientationAuto).
		ReduceOptions(common.NewReduceDataOptionsBuilder().Calcs([]string{"lastNotNull"}))
	if p.Kind == grafana.Names {
		b.ColorMode(common.BigValueColorModeNone).TextMode(common.BigValueTextModeValueAndName)
	}
	for i, q := range p.Queries {
		b.WithTarget(query(q, i))
	}
	return b
}

func query(q grafana.Query, i int) *prometheus.DataqueryBuilder {
	return prometheus.NewDataqueryBuilder().
		Datasource(source).
		Expr(q.PromQL()).
		LegendFormat(q.Legend).
		RefId(string(rune('A' + i))).
		Range()
}

func thresholds(p grafana.Panel) *dashboard.ThresholdsConfigBuilder {
	base := p.Base
	if base == "" {
		base = grafana.Good
	}
	steps := []dashboard.Threshold{{Color: string(base)}}
	for _, s := range p.Steps {
		steps = append(steps, dashboard.Threshold{Value: new(s.From), Color: string(s.Color)})
	}
	return dashboard.NewThresholdsConfigBuilder().Mode(dashboard.ThresholdsModeAbsolute).Steps(steps)
}

// description is what the panel says and the series it says it from.
func description(p grafana.Panel) string {
	return p.About + "\n\nSeries: `" + strings.Join(p.Series(), "`, `") + "`."
}
