"use strict"
// Pages that load themselves again, the search field from anywhere, times in the zone of the browser on hover, buttons that copy commands, and sliders.
{
  const seconds = Number(document.body.dataset.againAfter)
  const again = () => {
    if (document.activeElement.matches("input, textarea, select")) setTimeout(again, 1000)
    else location.reload()
  }
  if (seconds) setTimeout(again, seconds * 1000)
}
document.addEventListener("keydown", event => {
  const isTyping = event.target.closest("input, textarea, select")
  if (event.key !== "/" || isTyping || event.ctrlKey || event.metaKey || event.altKey) return
  event.preventDefault()
  document.getElementById("search").select()
})
for (const time of document.querySelectorAll("time")) {
  const moment = new Date(time.dateTime)
  if (!isNaN(moment)) time.title = moment.toLocaleString(undefined, {dateStyle: "full", timeStyle: "long"})
}
for (const button of document.querySelectorAll("[data-copy]")) {
  button.hidden = !navigator.clipboard
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(button.dataset.copy)
    button.textContent = "Copied"
  })
}
for (const slider of document.querySelectorAll("input[data-sets]")) {
  const field = document.getElementById(slider.dataset.sets), chosen = document.getElementById("chosen")
  const step = Number(slider.dataset.step)
  let isDragged = false
  const choose = () => {
    field.value = new Date(slider.valueAsNumber).toISOString()
    chosen.textContent = field.value
    slider.setAttribute("aria-valuetext", field.value)
  }
  slider.hidden = false
  slider.setAttribute("aria-valuetext", new Date(slider.valueAsNumber).toISOString())
  slider.addEventListener("input", choose)
  slider.addEventListener("pointerdown", () => { isDragged = true })
  slider.addEventListener("change", () => { if (isDragged) slider.form.requestSubmit() })
  slider.addEventListener("keydown", event => {
    isDragged = false
    const steps = {ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageDown: -10, PageUp: 10}[event.key]
    if (event.key === "Enter") slider.form.requestSubmit()
    else if (steps) {
      slider.value = slider.valueAsNumber + steps * (event.shiftKey ? Math.max(1, Math.round(step / 16)) : step)
      choose()
    } else return
    event.preventDefault()
  })
}
{
  const field = document.getElementById("search"), list = document.getElementById("found")
  let waiting = 0, request = null, active = -1
  const options = () => [...list.querySelectorAll("[role=option]")]
  const close = () => {
    list.hidden = true
    active = -1
    field.setAttribute("aria-expanded", "false")
    field.removeAttribute("aria-activedescendant")
  }
  const choose = index => {
    active = index
    options().forEach((option, i) => option.setAttribute("aria-selected", String(i === index)))
    if (index < 0) return field.removeAttribute("aria-activedescendant")
    field.setAttribute("aria-activedescendant", `found-${index}`)
    options()[index].scrollIntoView({block: "nearest"})
  }
  const show = found => {
    list.replaceChildren(...found.map((each, i) => {
      const option = Object.assign(document.createElement("a"), {href: each.url, id: `found-${i}`, tabIndex: -1})
      const kind = Object.assign(document.createElement("small"), {textContent: each.kind})
      option.setAttribute("role", "option")
      option.setAttribute("aria-selected", "false")
      option.append(kind, each.name)
      return option
    }))
    if (!found.length) {
      const none = Object.assign(document.createElement("span"), {textContent: "Nothing found."})
      none.setAttribute("role", "option")
      none.setAttribute("aria-disabled", "true")
      list.append(none)
    }
    active = -1
    list.hidden = false
    field.setAttribute("aria-expanded", "true")
  }
  field.addEventListener("input", () => {
    clearTimeout(waiting)
    request?.abort()
    if (!field.value) return close()
    waiting = setTimeout(async () => {
      request = new AbortController()
      const address = new URL("search", document.querySelector("form[role=search]").action)
      for (const {name, value} of field.form.elements) if (name) address.searchParams.set(name, value)
      try {
        const response = await fetch(address, {signal: request.signal})
        if (response.ok) show(await response.json())
      } catch (error) {
        if (error.name !== "AbortError") close()
      }
    }, 120)
  })
  field.addEventListener("keydown", event => {
    const links = options().filter(option => option.href)
    const move = {ArrowDown: 1, ArrowUp: -1}[event.key]
    if (move && !list.hidden && links.length) choose((active + move + links.length + (active < 0 && move < 0 ? 1 : 0)) % links.length)
    else if (event.key === "Enter" && active >= 0) links[active].click()
    else if (event.key === "Escape" && !list.hidden) close()
    else return
    event.preventDefault()
  })
  field.addEventListener("blur", event => { if (!list.contains(event.relatedTarget)) setTimeout(close, 200) })
}
