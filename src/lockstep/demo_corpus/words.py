"""All words that are neither nouns nor verbs. Columns are at least two spaces apart."""

# English, German, the two comparatives ("-" for the regular one, "x" for none), kinds of nouns it describes.
# A German stem that differs before an ending follows its base form: teuer/teur.
ADJECTIVES = """
old            alt           older        älter       people animals texts clothes objects places
new            neu           newer        neuer       texts clothes objects places
young          jung          younger      jünger      people animals
big            groß          bigger       größer      animals objects places servings
small          klein         smaller      kleiner     people animals food objects places servings
tall           groß          taller       größer      people
beautiful      schön         -            -           people animals clothes objects places texts
ugly           hässlich      uglier       -           animals clothes objects places
expensive      teuer/teur    -            teurer      clothes objects food drinks
cheap          billig        cheaper      -           clothes objects food drinks
good           gut           better       besser      people texts food drinks objects places events
strange        seltsam       stranger     -           people animals texts clothes objects places events
famous         berühmt       -            -           people texts places
rich           reich         richer       -           people
poor           arm           poorer       ärmer       people
clever         klug          -            klüger      people animals
strong         stark         stronger     stärker     people animals
weak           schwach       weaker       schwächer   people animals
brave          mutig         braver       -           people animals
lazy           faul          lazier       -           people animals
polite         höflich       -            -           people
honest         ehrlich       -            -           people
friendly       freundlich    friendlier   -           people animals
nice           nett          nicer        -           people
sick           krank         sicker       kränker     people animals
healthy        gesund        healthier    gesünder    people animals
happy          glücklich     happier      -           people
sad            traurig       sadder       -           people texts
tired          müde/müd      x            x           people animals
hungry         hungrig       x            x           people animals
thirsty        durstig       x            x           people animals
angry          wütend        x            x           people
nervous        nervös        -            -           people
curious        neugierig     -            -           people animals
proud          stolz         prouder      -           people
lonely         einsam        lonelier     -           people places
patient        geduldig      -            -           people
serious        ernst         -            -           people texts
funny          lustig        funnier      -           people texts
dangerous      gefährlich    -            -           animals places objects
fast           schnell       faster       -           vehicles
heavy          schwer        heavier      -           objects
red            rot           x            x           clothes objects
blue           blau          x            x           clothes objects
green          grün          x            x           clothes objects
white          weiß          x            x           clothes objects animals
black          schwarz       x            x           clothes objects animals
yellow         gelb          x            x           clothes objects
brown          braun         x            x           clothes objects animals
grey           grau          x            x           clothes objects animals
dirty          schmutzig     dirtier      -           clothes objects places
broken         kaputt        x            x           objects
modern         modern        -            -           objects places
long           lang          longer       länger      texts events
interesting    interessant   -            -           texts places events
boring         langweilig    -            -           texts places events people
exciting       spannend      -            -           texts events
important      wichtig       -            -           texts events people
fresh          frisch        fresher      -           food drinks
cold           kalt          colder       kälter      food drinks places
hot            heiß          hotter       -           food drinks
sweet          süß           sweeter      -           food drinks
delicious      köstlich      -            -           food drinks
quiet          ruhig         quieter      -           places
dark           dunkel/dunkl  darker       dunkler     places
"""

MANNERS = {
    "speed": """
        quickly         schnell
        slowly          langsam
    """,
    "care": """
        cautiously      vorsichtig
        calmly          ruhig
    """,
    "focus": """
        patiently       geduldig
        attentively     aufmerksam
    """,
    "neat": """
        carefully       sorgfältig
        thoroughly      gründlich
    """,
    "voice": """
        loudly          laut
        quietly         leise
    """,
    "skill": """
        well            gut
        badly           schlecht
    """,
}

# Subject, object and possessive in English; nominative, accusative, dative and possessive stem in German; agreement;
# and the referent: subject and object must not have the same one.
PRONOUNS = """
I     me    my     ich  mich  mir    mein   0  speaker
you   you   your   Sie  Sie   Ihnen  Ihr    2  hearer
he    him   his    er   ihn   ihm    sein   1  other
she   her   her    sie  sie   ihr    ihr    1  other
we    us    our    wir  uns   uns    unser  2  speaker
they  them  their  sie  sie   ihnen  ihr    2  other
"""

WOMEN = "Anna  Maria  Lisa  Julia  Laura  Sofia  Eva  Emma"
MEN = "Peter  Martin  Paul  David  Daniel  Michael  Simon  Oliver"

# English, German.
CITIES = """
Berlin        Berlin
Hamburg       Hamburg
Munich        München
Cologne       Köln
Nuremberg     Nürnberg
Vienna        Wien
Zurich        Zürich
Geneva        Genf
Rome          Rom
Milan         Mailand
Venice        Venedig
Prague        Prag
Warsaw        Warschau
Lisbon        Lissabon
London        London
Paris         Paris
Germany       Deutschland
Austria       Österreich
France        Frankreich
Italy         Italien
Spain         Spanien
"""

# English, place and direction in German: countries that keep their article.
COUNTRIES_WITH_ARTICLE = """
Switzerland   in der Schweiz  in die Schweiz
Turkey        in der Türkei   in die Türkei
"""

HERE_AND_THERE = """
at home       zu Hause
here          hier
there         dort
outside       draußen
"""

# English, German: two-way prepositions that say where something is.
RELATIONS = """
in front of   vor
behind        hinter
next to       neben
"""

FREQUENCIES = """
often         oft
sometimes     manchmal
always        immer
usually       meistens
rarely        selten
never         nie
"""

NOW = """
now                 jetzt
today               heute
at the moment       im Moment
this evening        heute Abend
"""

HABITS = """
every day           jeden Tag
every morning       jeden Morgen
every evening       jeden Abend
every week          jede Woche
every year          jedes Jahr
in the afternoon    am Nachmittag
in spring           im Frühling
in summer           im Sommer
in autumn           im Herbst
in winter           im Winter
"""

PAST = """
yesterday           gestern
yesterday evening   gestern Abend
last night          letzte Nacht
last week           letzte Woche
last month          letzten Monat
last year           letztes Jahr
last summer         letzten Sommer
recently            vor Kurzem
"""

FUTURE = """
tomorrow            morgen
tomorrow evening    morgen Abend
next week           nächste Woche
next month          nächsten Monat
next year           nächstes Jahr
next summer         nächsten Sommer
soon                bald
later               später
"""

# English plural, German dative plural.
UNITS = """
minutes       Minuten
hours         Stunden
days          Tagen
weeks         Wochen
months        Monaten
years         Jahren
"""

# What can be said of an infinitive ("it is easy to ..."): English, German.
JUDGEMENTS = """
easy          einfach
difficult     schwierig
possible      möglich
impossible    unmöglich
important     wichtig
necessary     notwendig
dangerous     gefährlich
"""

# What can be said of the weather or the hour ("it is cold"): English, German.
CONDITIONS = """
cold          kalt
warm          warm
hot           heiß
dark          dunkel
late          spät
"""
