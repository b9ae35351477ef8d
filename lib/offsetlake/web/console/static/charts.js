"use strict"
// Charts of committed offsets, and of the lag below each: drawn by uPlot from /series, with one period for all charts of the page.
{
  const charts = [], HEIGHT = 300, LAG_HEIGHT = 130, utc = time => new Date(time).toISOString()
  const number = value => value === null || value === undefined ? "" : value.toLocaleString("en-US")
  const color = name => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim()
  const day = 86400000
  // Distances of ticks: no fractions of records.
  const STEPS = Array.from({length: 18}, (_, power) => [1, 2, 5].map(digit => digit * 10 ** power)).flat()
  let period = null, whole = null, left = 0

  // Returns labels in UTC, with the date below the first time of each day.
  function times(_, splits, axis, space, step) {
    let before = ""
    return splits.map(split => {
      const [date, time] = utc(split).slice(0, -1).split("T")
      const shown = step >= day ? "" : step >= 60000 ? time.slice(0, 5) : step >= 1000 ? time.slice(0, 8) : time
      const label = date === before ? shown : shown ? `${shown}\n${date}` : date
      before = date
      return label
    })
  }

  // Returns the axes of a plot; those of time of all plots begin at the same place.
  function axes(hasTimes, space) {
    const axis = {stroke: color("muted"), grid: {stroke: color("line"), width: 1}, ticks: {stroke: color("line")}}
    return [
      {...axis, values: hasTimes ? times : (_, splits) => splits.map(() => ""), space: 110, size: hasTimes ? 50 : 12},
      {...axis, values: (_, values) => values.map(number), space, incrs: STEPS, size: left},
    ]
  }

  class Chart {
    constructor(figure) {
      this.figure = figure
      this.place = figure.querySelector(".plot")
      this.readout = figure.querySelector(".readout")
      this.index = -1
    }

    async load() {
      const address = new URL(this.figure.dataset.series, location)
      if (period) {
        address.searchParams.set("since", Math.round(period[0]))
        address.searchParams.set("until", Math.round(period[1]))
      }
      try {
        const response = await fetch(address)
        if (!response.ok) {
          const page = new DOMParser().parseFromString(await response.text(), "text/html")
          throw new Error(page.querySelector("[role=alert]")?.textContent || `The server answered ${response.status}.`)
        }
        this.data = await response.json()
      } catch (error) {
        this.place.classList.remove("skeleton")
        this.readout.textContent = `The chart cannot be shown: ${error.message}`
        return
      }
    }

    draw() {
      const {steps, ends, commits, marks} = this.data, shown = period || whole || this.data.period
      this.plot?.destroy()
      if (this.lag) this.lag.destroy()
      this.place.classList.remove("skeleton")
      const last = steps.time.length - 1, end = Math.max(shown[1], steps.time[last] ?? 0)
      // An offset is in force until the millisecond before it is deleted.
      const line = steps.time.flatMap((time, i) => steps.offset[i] === null && time - 1 > steps.time[i - 1] ?
        [[time - 1, steps.offset[i - 1]], [time, null]] : [[time, steps.offset[i]]])
      line.push([end + 1, last < 0 ? null : steps.offset[last]])
      const committed = [line.map(([time]) => time), line.map(([, offset]) => offset)]
      const data = uPlot.join([committed, [ends.time, ends.offset]])
      this.figure.querySelector(".summary").textContent =
        `${number(commits)} ${commits === 1 ? "commit" : "commits"}` +
        (marks.length ? `, ${number(marks.length + this.data.more_marks)} other than ordinary` : "")
      const hasLag = ends.lag.some(lag => lag !== null)
      const range = () => shown[0] < shown[1] ? shown : [shown[0] - 1000, shown[1] + 1000]
      const cursor = {drag: {x: true, y: false, setScale: false}, points: {size: 7}}
      const hooks = {
        setSelect: [plot => {
          const {left, width} = plot.select
          if (width > 3) show([plot.posToVal(left, "x"), plot.posToVal(left + width, "x")])
        }],
      }
      const common = {width: this.place.clientWidth, ms: 1, legend: {show: false}, cursor, tzDate: time => uPlot.tzDate(new Date(time), "Etc/UTC")}
      this.plot = new uPlot({
        ...common, height: HEIGHT, padding: [null, 28, null, null], scales: {x: {range}}, axes: axes(!hasLag, 50),
        series: [
          {},
          {stroke: color("committed"), width: 2, paths: uPlot.paths.stepped({align: 1}), points: {show: steps.time.length < 60, size: 6}},
          {stroke: color("end"), width: 1.5, dash: [6, 4], points: {show: false}},
        ],
        hooks: {
          ...hooks,
          drawClear: [plot => this.drawDensity(plot)],
          draw: [plot => this.drawMarks(plot)],
          setCursor: [plot => { if (plot.cursor.left >= 0) this.read(this.nearest(plot.cursor.left)) }],
        },
      }, data, this.place)
      this.lag = hasLag && new uPlot({
        ...common, height: LAG_HEIGHT, padding: [8, 28, null, null], hooks, axes: axes(true, 25),
        scales: {x: {range}, y: {range: (_, low, high) => [0, Math.max(high || 0, 1)]}},
        series: [{}, {stroke: color("lag"), fill: color("lag") + "33", width: 1.5, points: {show: ends.time.length < 60, size: 5}}],
      }, [ends.time, ends.lag], this.place)
      if (this.lag) this.lag.over.addEventListener("dblclick", () => show(null))
      this.plot.over.addEventListener("click", event => { if (!this.plot.select.width) this.open(this.nearest(event.offsetX)) })
      this.plot.over.addEventListener("dblclick", () => show(null))
      this.place.tabIndex = 0
      this.place.setAttribute("role", "application")
      this.place.setAttribute("aria-label", `Chart of ${this.figure.querySelector("figcaption").textContent.trim()}. ` +
        "Left and right arrows move between the commits, Enter explains one, plus and minus zoom.")
    }

    drawDensity(plot) {
      const {ctx, bbox} = plot, counts = this.data.density, most = Math.max(1, ...counts)
      const [low, high] = this.data.period.map(time => plot.valToPos(time, "x", true)), width = (high - low) / counts.length
      ctx.save()
      ctx.fillStyle = color("density")
      ctx.globalAlpha = 0.3
      counts.forEach((count, i) => {
        const height = bbox.height * 0.3 * Math.sqrt(count / most)
        ctx.fillRect(low + i * width, bbox.top + bbox.height - height, Math.max(width, 1), height)
      })
      ctx.restore()
    }

    drawMarks(plot) {
      const {ctx, bbox} = plot, pixels = devicePixelRatio || 1
      ctx.save()
      ctx.beginPath()
      ctx.rect(bbox.left, bbox.top - 12 * pixels, bbox.width, bbox.height + 24 * pixels)
      ctx.clip()
      ctx.fillStyle = color("rebalances")
      for (const time of this.data.rebalances) {
        ctx.fillRect(plot.valToPos(time, "x", true) - pixels, bbox.top + bbox.height - 9 * pixels, 2 * pixels, 9 * pixels)
      }
      ctx.textAlign = "center"
      ctx.textBaseline = "middle"
      ctx.font = `bold ${14 * pixels}px sans-serif`
      for (const mark of this.data.marks) {
        const isBack = mark.new !== null && mark.old !== null && mark.new < mark.old
        const x = plot.valToPos(mark.time, "x", true), y = plot.valToPos(mark.new ?? mark.old ?? 0, "y", true)
        const tone = color(isBack ? "resets" : mark.new === null ? "deletions" : "second")
        ctx.strokeStyle = ctx.fillStyle = tone
        ctx.globalAlpha = 0.5
        ctx.fillRect(x - pixels / 2, bbox.top, pixels, bbox.height)
        ctx.globalAlpha = 1
        ctx.fillText(isBack ? "▼" : mark.new === null ? "✕" : "▲", x, Math.min(Math.max(y, bbox.top + 8 * pixels), bbox.top + bbox.height - 8 * pixels))
      }
      ctx.restore()
    }

    // Returns the index of the step nearest to a position; one that is not an ordinary commit is preferred.
    nearest(left) {
      const position = time => Math.abs(this.plot.valToPos(time, "x") - left)
      const mark = this.data.marks.filter(each => position(each.time) < 10).sort((a, b) => position(a.time) - position(b.time))[0]
      if (mark) return this.data.steps.record.indexOf(mark.record)
      let best = -1
      this.data.steps.time.forEach((time, i) => { if (best < 0 || position(time) < position(this.data.steps.time[best])) best = i })
      return best
    }

    read(index) {
      const {steps, marks, ends} = this.data
      if (index < 0) return
      this.index = index
      const mark = marks.find(each => each.record === steps.record[index])
      const time = steps.time[index], offset = steps.offset[index]
      const known = ends.time.reduce((found, at, i) => at <= time ? i : found, -1)
      this.readout.textContent = `${utc(time)}: ${offset === null ? "deleted" : `offset ${number(offset)}`}` +
        (mark ? `, ${mark.change} from ${number(mark.old) || "no offset"}, by ${mark.who || "an unrecorded client"}` : "") +
        (known >= 0 ? `; log end ${number(ends.offset[known])}` : "") + " — click or Enter: why?"
    }

    open(index) {
      if (index < 0) return
      const address = new URL(this.figure.dataset.step, location)
      address.searchParams.set("record", this.data.steps.record[index])
      location.assign(address)
    }

    press(event) {
      if (!this.plot || event.ctrlKey || event.metaKey || event.altKey) return
      const count = this.data.steps.time.length
      const moves = {ArrowLeft: -1, ArrowRight: 1, Home: -count, End: count}
      if (event.key in moves && count) {
        const index = Math.min(Math.max(this.index + moves[event.key], 0), count - 1)
        this.plot.setCursor({left: this.plot.valToPos(this.data.steps.time[index], "x"), top: HEIGHT / 4}, false)
        this.read(index)
      } else if (event.key === "Enter") this.open(this.index)
      else if (event.key === "+" || event.key === "-" || event.key === "0") zoom({"+": "in", "-": "out", 0: "all"}[event.key])
      else return
      event.preventDefault()
    }
  }

  const shownPeriod = () => period || whole

  async function load() {
    for (const chart of charts) await chart.load()
    const loaded = charts.filter(chart => chart.data)
    if (!loaded.length) return
    if (!period) whole = [0, 1].map(i => Math[i ? "max" : "min"](...loaded.map(chart => chart.data.period[i])))
    const highest = Math.max(0, ...loaded.flatMap(({data}) => [...data.steps.offset, ...data.ends.offset, ...data.ends.lag]))
    left = 20 + 7 * Math.max(5, number(highest).length)
    for (const chart of loaded) chart.draw()
  }

  const first = location.search, addresses = new Map()

  // Shows a period, or everything if it is null; Back shows the one before.
  async function show(wanted) {
    const address = new URL(location)
    for (const [name, i] of [["since", 0], ["until", 1]]) {
      if (wanted) address.searchParams.set(name, utc(wanted[i]))
      else address.searchParams.delete(name)
    }
    if (address.href !== location.href) history.pushState(null, "", address)
    await showAddress()
  }

  // Shows the period in the address of the page, which is that of the charts at first.
  async function showAddress() {
    const entered = new URLSearchParams(location.search), isFirst = location.search === first
    const [low, high] = ["since", "until"].map(name => Date.parse(entered.get(name)))
    period = !isFirst && low < high ? [low, high] : null
    for (const name of ["since", "until"])
      for (const field of document.querySelectorAll(`input[name=${name}]`)) field.value = entered.get(name) ?? ""
    for (const chart of charts) {
      const series = new URL(addresses.get(chart), location)
      if (!isFirst) for (const name of ["since", "until"]) series.searchParams.delete(name)
      chart.figure.dataset.series = series
    }
    await load()
  }

  function zoom(how) {
    const now = shownPeriod()
    if (!now) return
    const [low, high] = now, length = Math.max(high - low, 4)
    const [left, right] = {in: [0.25, -0.25], out: [-0.5, 0.5], earlier: [-0.5, -0.5], later: [0.5, 0.5]}[how] || []
    show(how === "all" ? null : [Math.round(low + left * length), Math.round(high + right * length)])
  }

  for (const figure of document.querySelectorAll("figure.chart")) charts.push(new Chart(figure))
  for (const chart of charts) addresses.set(chart, chart.figure.dataset.series)
  for (const tools of document.querySelectorAll(".tools")) tools.hidden = false
  for (const button of document.querySelectorAll("[data-zoom]")) button.addEventListener("click", () => zoom(button.dataset.zoom))
  for (const chart of charts) chart.place.addEventListener("keydown", event => chart.press(event))
  const redraw = () => { for (const chart of charts) if (chart.data) chart.draw() }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw)
  addEventListener("popstate", showAddress)
  let waiting = 0
  addEventListener("resize", () => { clearTimeout(waiting); waiting = setTimeout(redraw, 150) })
  load()
}
