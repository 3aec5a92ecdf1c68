"""Tables of the grammar: which spellings mean what."""

from __future__ import annotations

UNICODE = {
    "−": "-", "–": "-", "—": "-", "‐": "-", "‑": "-", "×": "*", "·": "*", "⋅": "*", "∙": "*", "÷": "/", "∕": "/",
    "⁄": "/", "≤": "<=", "⩽": "<=", "≥": ">=", "⩾": ">=", "≠": "!=", "≈": "\\approx ", "∞": "\\infty ", "π": "\\pi ",
    "√": "\\sqrt ", "∪": "\\cup ", "∩": "\\cap ", "∈": "\\in ", "∅": "\\emptyset ", "±": "\\pm ", "∓": "\\mp ",
    "°": "^{\\circ}", "º": "^{\\circ}", "′": "'", "’": "'", "⌊": "\\lfloor ", "⌋": "\\rfloor ", "⌈": "\\lceil ",
    "⌉": "\\rceil ", "½": "\\frac{1}{2}", "⅓": "\\frac{1}{3}", "⅔": "\\frac{2}{3}", "¼": "\\frac{1}{4}",
    "¾": "\\frac{3}{4}", "⅕": "\\frac{1}{5}", "⅛": "\\frac{1}{8}", "…": "\\ldots ", "ℝ": "\\mathbb{R}", "€": "\\$",
    "£": "\\$", "‘": "'", "“": '"', "”": '"', "α": "\\alpha ", "β": "\\beta ", "γ": "\\gamma ", "δ": "\\delta ",
    "ε": "\\epsilon ", "θ": "\\theta ", "λ": "\\lambda ", "μ": "\\mu ", "σ": "\\sigma ", "τ": "\\tau ",
    "φ": "\\phi ", "ω": "\\omega ", "Δ": "\\Delta ", "Ω": "\\Omega ", "∼": "\\sim ", "→": "\\to ",
}  # fmt: skip

ARGUMENTS = {
    "frac": "frac", "dfrac": "frac", "tfrac": "frac", "cfrac": "frac", "binom": "binom", "dbinom": "binom",
    "tbinom": "binom", "sqrt": "sqrt", "overline": "overline", "bar": "bar", "hat": "hat", "vec": "vec",
    "dot": "dot", "ddot": "ddot", "tilde": "tilde", "mathbb": "mathbb", "mathcal": "mathcal", "boxed": "group",
    "fbox": "group", "underline": "group", "overrightarrow": "vec", "widehat": "hat", "rm": "skip",
    "mathrm": "skip", "text": "skip", "mathbf": "skip", "mathit": "skip",
    "textbf": "skip", "boldsymbol": "skip", "displaystyle": "skip", "operatorname": "skip", "bf": "skip",
    "it": "skip", "mathfrak": "mathcal", "dots": "ldots", "ldots": "ldots", "cdots": "ldots", "vdots": "ldots",
    "over": "over", "choose": "choose", "sfrac": "frac", "nicefrac": "frac", "large": "skip", "Large": "skip",
    "LARGE": "skip", "huge": "skip", "Huge": "skip", "small": "skip", "normalsize": "skip", "sf": "skip", "tt": "skip",
    "pmod": "mod", "bmod": "mod", "mod": "mod",
}  # fmt: skip
"""Commands that the parser handles one by one."""

COMMAND_OPS = {
    "cdot": ("OP", "*"), "times": ("OP", "*"), "ast": ("OP", "*"), "div": ("OP", "/"), "pm": ("OP", "±"),
    "mp": ("OP", "∓"), "le": ("REL", "<="), "leq": ("REL", "<="), "leqslant": ("REL", "<="), "lt": ("REL", "<"),
    "ge": ("REL", ">="), "geq": ("REL", ">="), "geqslant": ("REL", ">="), "gt": ("REL", ">"), "ne": ("REL", "!="),
    "neq": ("REL", "!="), "approx": ("REL", "~"), "simeq": ("REL", "~"), "in": ("REL", "in"), "equiv": ("REL", "="),
    "cup": ("OP", "∪"), "cap": ("OP", "∩"), "setminus": ("OP", "∖"), "backslash": ("OP", "∖"),
    "infty": ("NAME", "oo"), "pi": ("NAME", "pi"), "emptyset": ("NAME", "∅"), "varnothing": ("NAME", "∅"),
    "lfloor": ("OPEN", "⌊"), "rfloor": ("CLOSE", "⌋"), "lceil": ("OPEN", "⌈"), "rceil": ("CLOSE", "⌉"),
    "lbrace": ("OPEN", "\\{"), "rbrace": ("CLOSE", "\\}"), "lbrack": ("OPEN", "["), "rbrack": ("CLOSE", "]"),
    "langle": ("OPEN", "("), "rangle": ("CLOSE", ")"), "lvert": ("OPEN", "abs"), "rvert": ("CLOSE", "abs"),
    "vert": ("OP", "|"), "mid": ("OP", "mid"), "prime": ("OP", "'"), "circ": ("OP", "°"), "degree": ("OP", "°"),
    "percent": ("OP", "%"), "lor": ("SEP", "or"), "land": ("SEP", "and"), "colon": ("OP", ":"), "lnot": ("NAME", "not"),
    "to": ("OP", "->"), "dollar": ("OP", "$"),
}  # fmt: skip

RELATIONS = {"=": "=", "==": "=", "<": "<", ">": ">", "<=": "<=", ">=": ">=", "!=": "!="}

_NAMES = (
    "sin cos tan cot sec csc sinh cosh tanh coth arcsin arccos arctan ln log exp lg max min gcd lcm det "
    "Re Im arg sgn deg sqrt abs floor ceil"
)
FUNCTIONS = {name: name for name in _NAMES.split()} | {
    "asin": "arcsin", "acos": "arccos", "atan": "arctan", "sign": "sgn", "cosec": "csc", "ceiling": "ceil",
    "arcsinh": "asinh", "arccosh": "acosh", "arctanh": "atanh", "cbrt": "cbrt",
}  # fmt: skip

_GREEK = (
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi rho sigma tau upsilon phi chi psi omega "
    "Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega"
)
GREEK = set(_GREEK.split())
LETTERLIKE = {
    "varepsilon": "epsilon", "vartheta": "theta", "varphi": "phi", "varrho": "rho", "varsigma": "sigma",
    "varpi": "varpi", "ell": "ell", "hbar": "hbar", "imath": "i", "jmath": "j", "partial": "partial", "nabla": "nabla",
    "odot": "odot", "angle": "angle", "triangle": "triangle", "mho": "mho", "oplus": "oplus", "star": "star",
    "Re": "Re", "Im": "Im", "aleph": "aleph", "dagger": "dagger", "perp": "perp", "parallel": "parallel",
}  # fmt: skip
SPELLED = {g: g for g in GREEK if len(g) > 2} | {
    "pi": "pi", "Pi": "pi", "PI": "pi", "inf": "oo", "infinity": "oo", "Infinity": "oo", "oo": "oo",
    "math": "",     "mu": "mu", "nu": "nu", "xi": "xi",
}  # fmt: skip

_WORDS = (
    "no yes odd all any one two six ten red dne on off up via sum not the is are of to in if for each per only none "
    "cm mm km kg mg ml min hr hrs sec ft yd mi oz lb lbs mph kph usd pm am day m/s"
)
WORDS = set(_WORDS.split())
"""Short runs of letters that are words or units and no products."""

UNITS = {
    "meter": "m", "meters": "m", "metre": "m", "metres": "m", "m": "m", "centimeter": "cm", "centimeters": "cm",
    "cm": "cm", "millimeters": "mm", "mm": "mm", "kilometer": "km", "kilometers": "km", "km": "km", "inch": "in",
    "inches": "in", "in": "in", "foot": "ft", "feet": "ft", "ft": "ft", "yard": "yd", "yards": "yd", "yd": "yd",
    "mile": "mi", "miles": "mi", "mi": "mi", "gram": "g", "grams": "g", "g": "g", "kg": "kg", "kilograms": "kg",
    "kilogram": "kg", "pound": "lb", "pounds": "lb", "lb": "lb", "lbs": "lb", "ounce": "oz", "ounces": "oz",
    "second": "s", "seconds": "s", "sec": "s", "s": "s", "minute": "min", "minutes": "min", "min": "min",
    "hour": "h", "hours": "h", "hr": "h", "hrs": "h", "h": "h", "day": "d", "days": "d", "week": "wk", "weeks": "wk",
    "month": "mo", "months": "mo", "year": "yr", "years": "yr", "dollar": "$", "dollars": "$", "usd": "$", "cent": "c",
    "cents": "c", "degree": "deg", "degrees": "deg", "radian": "rad", "radians": "rad", "percent": "%", "c": "C",
    "celsius": "C", "liter": "L", "liters": "L", "l": "L", "ml": "ml", "mph": "mph", "kph": "kph", "n": "N", "j": "J",
    "joules": "J", "newtons": "N", "watts": "W", "w": "W", "pa": "Pa", "hz": "Hz", "ev": "eV", "k": "K",
}  # fmt: skip
"""Canonical names of units. Two answers with different known units are different; one without a unit is not."""
