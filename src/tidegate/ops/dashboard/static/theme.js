// Before anything is drawn: the choice of dark or light that this browser remembers. Without one, the system's.
const theme = localStorage.getItem("theme");
if (theme === "dark" || theme === "light") document.documentElement.dataset.theme = theme;
