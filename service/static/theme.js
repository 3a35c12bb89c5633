// Before anything is drawn, so that a dark page never flashes white.
try {
  const theme = localStorage.getItem("theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch { /* storage may be forbidden; the system's choice stands */ }
