"""The nouns. The columns are: English (with an irregular plural), German with its article, genitive ending, plural.

Columns are at least two spaces apart. The nouns of a table take the same verbs, adjectives and determiners. No English
word has two German translations, and no noun is also a verb or an adjective, so that an English sentence has exactly one
translation.
"""

RELATIVES = """
friend              der Freund          es   Freunde
brother             der Bruder          s    Brüder
sister              die Schwester       -    Schwestern
mother              die Mutter          -    Mütter
father              der Vater           s    Väter
son                 der Sohn            es   Söhne
daughter            die Tochter         -    Töchter
uncle               der Onkel           s    Onkel
aunt                die Tante           -    Tanten
grandmother         die Großmutter      -    Großmütter
grandfather         der Großvater       s    Großväter
child/children      das Kind            es   Kinder
nephew              der Neffe           n    Neffen
neighbour           der Nachbar         n    Nachbarn
colleague           der Kollege         n    Kollegen
boss                der Chef            s    Chefs
teacher             der Lehrer          s    Lehrer
doctor              der Arzt            es   Ärzte
guest               der Gast            es   Gäste
customer            der Kunde           n    Kunden
lawyer              der Anwalt          s    Anwälte
secretary           die Sekretärin      -    Sekretärinnen
student             der Student         en   Studenten
"""

PEOPLE = """
man/men             der Mann            es   Männer
woman/women         die Frau            -    Frauen
boy                 der Junge           n    Jungen
girl                das Mädchen         s    Mädchen
policeman/policemen  der Polizist       en   Polizisten
soldier             der Soldat          en   Soldaten
president           der Präsident       en   Präsidenten
waiter              der Kellner         s    Kellner
baker               der Bäcker          s    Bäcker
gardener            der Gärtner         s    Gärtner
farmer              der Bauer           n    Bauern
painter             der Maler           s    Maler
singer              die Sängerin        -    Sängerinnen
actress             die Schauspielerin  -    Schauspielerinnen
nurse               die Krankenschwester  -  Krankenschwestern
saleswoman/saleswomen  die Verkäuferin  -    Verkäuferinnen
queen               die Königin         -    Königinnen
king                der König           s    Könige
prince              der Prinz           en   Prinzen
tourist             der Tourist         en   Touristen
engineer            der Ingenieur       s    Ingenieure
pilot               der Pilot           en   Piloten
judge               der Richter         s    Richter
writer              der Schriftsteller  s    Schriftsteller
journalist          der Journalist      en   Journalisten
musician            der Musiker         s    Musiker
witness             der Zeuge           n    Zeugen
thief/thieves       der Dieb            es   Diebe
driver              der Fahrer          s    Fahrer
mayor               der Bürgermeister   s    Bürgermeister
"""

PETS = """
dog                 der Hund            es   Hunde
cat                 die Katze           -    Katzen
horse               das Pferd           es   Pferde
bird                der Vogel           s    Vögel
rabbit              das Kaninchen       s    Kaninchen
cow                 die Kuh             -    Kühe
pig                 das Schwein         s    Schweine
goat                die Ziege           -    Ziegen
"""

WILD_ANIMALS = """
bear                der Bär             en   Bären
lion                der Löwe            n    Löwen
monkey              der Affe            n    Affen
elephant            der Elefant         en   Elefanten
mouse/mice          die Maus            -    Mäuse
snake               die Schlange        -    Schlangen
wolf/wolves         der Wolf            es   Wölfe
"""

TEXTS = """
book                das Buch            es   Bücher
newspaper           die Zeitung         -    Zeitungen
letter              der Brief           es   Briefe
novel               der Roman           s    Romane
poem                das Gedicht         s    Gedichte
report              der Bericht         s    Berichte
message             die Nachricht       -    Nachrichten
postcard            die Postkarte       -    Postkarten
article             der Artikel         s    Artikel
story               die Geschichte      -    Geschichten
"""

FOOD = """
apple               der Apfel           s    Äpfel
egg                 das Ei              s    Eier
pear                die Birne           -    Birnen
banana              die Banane          -    Bananen
tomato/tomatoes     die Tomate          -    Tomaten
potato/potatoes     die Kartoffel       -    Kartoffeln
cake                der Kuchen          s    Kuchen
sausage             die Wurst           -    Würste
roll                das Brötchen        s    Brötchen
soup                die Suppe           -    Suppen
salad               der Salat           s    Salate
pizza               die Pizza           -    Pizzas
"""

GROCERIES = """
bread               das Brot            es   -
cheese              der Käse            s    -
meat                das Fleisch         es   -
butter              die Butter          -    -
honey               der Honig           s    -
chocolate           die Schokolade      -    -
"""

DRINKS = """
water               das Wasser          s    -
milk                die Milch           -    -
coffee              der Kaffee          s    -
tea                 der Tee             s    -
wine                der Wein            es   -
beer                das Bier            es   -
juice               der Saft            es   -
lemonade            die Limonade        -    -
"""

SERVINGS = """
cup of tea          die Tasse Tee       -    Tassen
cup of coffee       die Tasse Kaffee    -    Tassen
glass of water      das Glas Wasser     es   Gläser
glass of milk       das Glas Milch      es   Gläser
bottle of wine      die Flasche Wein    -    Flaschen
bottle of juice     die Flasche Saft    -    Flaschen
"""

CLOTHES = """
shirt               das Hemd            es   Hemden
skirt               der Rock            es   Röcke
coat                der Mantel          s    Mäntel
hat                 der Hut             es   Hüte
shoe                der Schuh           s    Schuhe
jacket              die Jacke           -    Jacken
scarf/scarves       der Schal           s    Schals
sweater             der Pullover        s    Pullover
dress               das Kleid           es   Kleider
tie                 die Krawatte        -    Krawatten
"""

VEHICLES = """
car                 das Auto            s    Autos
bus                 der Bus             ses  Busse
train               der Zug             es   Züge
bicycle             das Fahrrad         s    Fahrräder
boat                das Boot            es   Boote
ship                das Schiff          es   Schiffe
plane               das Flugzeug        s    Flugzeuge
taxi                das Taxi            s    Taxis
"""

DEVICES = """
lamp                die Lampe           -    Lampen
computer            der Computer        s    Computer
radio               das Radio           s    Radios
television          der Fernseher       s    Fernseher
camera              die Kamera          -    Kameras
printer             der Drucker         s    Drucker
machine             die Maschine        -    Maschinen
"""

CONTAINERS = """
door                die Tür             -    Türen
window              das Fenster         s    Fenster
suitcase            der Koffer          s    Koffer
box                 die Kiste           -    Kisten
drawer              die Schublade       -    Schubladen
cupboard            der Schrank         s    Schränke
"""

THINGS = """
key                 der Schlüssel       s    Schlüssel
umbrella            der Regenschirm     s    Regenschirme
bag                 die Tasche          -    Taschen
knife/knives        das Messer          s    Messer
spoon               der Löffel          s    Löffel
plate               der Teller          s    Teller
mirror              der Spiegel         s    Spiegel
picture             das Bild            es   Bilder
ring                der Ring            es   Ringe
ticket              die Fahrkarte       -    Fahrkarten
gift                das Geschenk        s    Geschenke
coin                die Münze           -    Münzen
basket              der Korb            es   Körbe
doll                die Puppe           -    Puppen
ball                der Ball            es   Bälle
map                 die Landkarte       -    Landkarten
flower              die Blume           -    Blumen
"""

FURNITURE = """
chair               der Stuhl           s    Stühle
table               der Tisch           es   Tische
bed                 das Bett            es   Betten
sofa                das Sofa            s    Sofas
shelf/shelves       das Regal           s    Regale
armchair            der Sessel          s    Sessel
carpet              der Teppich         s    Teppiche
"""

EVENTS = """
meeting             die Besprechung     -    Besprechungen
course              der Kurs            es   Kurse
party               die Feier           -    Feiern
concert             das Konzert         s    Konzerte
wedding             die Hochzeit        -    Hochzeiten
journey             die Reise           -    Reisen
"""

# Three more columns: the English preposition of place, the German one (dative), and the German one of direction.
ROOMS = """
garden              der Garten          s    Gärten           in  in   in
kitchen             die Küche           -    Küchen           in  in   in
office              das Büro            s    Büros            in  in   in
house               das Haus            es   Häuser           in  in   in
flat                die Wohnung         -    Wohnungen        in  in   in
cellar              der Keller          s    Keller           in  in   in
bedroom             das Schlafzimmer    s    Schlafzimmer     in  in   in
bathroom            das Badezimmer      s    Badezimmer       in  in   in
"""

BUILDINGS = """
school              die Schule          -    Schulen          at  in   in
church              die Kirche          -    Kirchen          in  in   in
hotel               das Hotel           s    Hotels           in  in   in
restaurant          das Restaurant      s    Restaurants      in  in   in
museum              das Museum          s    Museen           in  in   in
theatre             das Theater         s    Theater          in  in   in
station             der Bahnhof         s    Bahnhöfe         at  an   zu
airport             der Flughafen       s    Flughäfen        at  an   zu
hospital            das Krankenhaus     es   Krankenhäuser    in  in   in
library             die Bibliothek      -    Bibliotheken     in  in   in
factory             die Fabrik          -    Fabriken         in  in   in
bakery              die Bäckerei        -    Bäckereien       in  in   zu
supermarket         der Supermarkt      s    Supermärkte      in  in   zu
university          die Universität     -    Universitäten    at  an   zu
castle              das Schloss         es   Schlösser        in  in   zu
"""

LANDSCAPES = """
park                der Park            s    Parks            in  in   in
city                die Stadt           -    Städte           in  in   in
village             das Dorf            es   Dörfer           in  in   in
forest              der Wald            es   Wälder           in  in   in
market              der Markt           es   Märkte           at  auf  zu
beach               der Strand          es   Strände          on  an   zu
lake                der See             s    Seen             at  an   zu
river               der Fluss           es   Flüsse           at  an   zu
bridge              die Brücke          -    Brücken          on  auf  zu
island              die Insel           -    Inseln           on  auf  auf
"""
